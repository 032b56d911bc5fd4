-- gate_override_end: take a switch back at once.
-- Takes   act, tenant_id, provider, bucket; steps, as gate_override_list
-- Returns one row: in_force (it still did something); no row if there was none
-- Locks   its row
-- Needs   the primary key
DELETE FROM gate_override
WHERE act = :act AND tenant_id = :tenant_id AND provider = :provider AND bucket = :bucket
RETURNING on_since IS NULL OR now() < on_since + (:steps::int - 1) * step_s * interval '1 second' AS in_force
