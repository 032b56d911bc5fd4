-- gate_override_set: put an override in force. A repeat replaces its reason and actor, and ends its rollout.
-- Takes   kind, tenant_id, provider, account ('' if the scope names none), reason, actor
-- Returns nothing
-- Locks   its row
-- Needs   the primary key
INSERT INTO gate_override AS s (kind, tenant_id, provider, account, reason, actor)
VALUES (:kind, :tenant_id, :provider, :account, :reason, :actor)
ON CONFLICT (kind, tenant_id, provider, account) DO UPDATE SET
    reason = excluded.reason, actor = excluded.actor, rollout_since = NULL, step_s = NULL,
    since = CASE WHEN s.rollout_since IS NULL THEN s.since ELSE excluded.since END
