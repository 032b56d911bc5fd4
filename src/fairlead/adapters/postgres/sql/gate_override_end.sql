-- gate_override_end: end an override at once.
-- Takes   kind, tenant_id, provider, account; steps, as in gate_override_list
-- Returns one row: in_force (it still had an effect); no row if there was none
-- Locks   its row
-- Needs   the primary key
DELETE FROM gate_override
WHERE kind = :kind AND tenant_id = :tenant_id AND provider = :provider AND account = :account
RETURNING rollout_since IS NULL
    OR now() < rollout_since + (:steps::int - 1) * step_s * interval '1 second' AS in_force
