-- gate_override_set: switch something; switched again, the newer reason and actor count, and nothing comes back of it.
-- Takes   act, tenant_id, provider, bucket ('' where the reach names none), reason, actor
-- Returns nothing
-- Locks   its row
-- Needs   the primary key
INSERT INTO gate_override AS s (act, tenant_id, provider, bucket, reason, actor)
VALUES (:act, :tenant_id, :provider, :bucket, :reason, :actor)
ON CONFLICT (act, tenant_id, provider, bucket) DO UPDATE SET
    reason = excluded.reason, actor = excluded.actor, on_since = NULL, step_s = NULL,
    since = CASE WHEN s.on_since IS NULL THEN s.since ELSE excluded.since END
