-- gate_override_rollout: start to enforce disabled limits again, step by step.
-- Takes   tenant_id, provider, account, step_s
-- Returns one row: kind; no row if nothing is disabled there, or if its rollout has already started
-- Locks   its row
-- Needs   the primary key
UPDATE gate_override SET rollout_since = now(), step_s = :step_s
WHERE kind = 'disabled' AND tenant_id = :tenant_id AND provider = :provider AND account = :account
    AND rollout_since IS NULL
RETURNING kind
