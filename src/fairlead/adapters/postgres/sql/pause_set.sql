-- pause_set: write a pause; of two ends the later one counts, with its reason.
-- Takes   scope, tenant_id ('' but for a group of one tenant), key, for_s (NULL: until it is resumed), reason, by
-- Returns nothing
-- Locks   its row
-- Needs   the primary key. A later transaction that makes a lane ready finds it; lane_pause moves those that are ready
INSERT INTO pause AS p (scope, tenant_id, key, until, reason, paused_by)
VALUES (:scope, :tenant_id, :key, coalesce(now() + :for_s::float8 * interval '1 second', 'infinity'), :reason, :by)
ON CONFLICT (scope, tenant_id, key) DO UPDATE SET
    until = excluded.until, reason = excluded.reason, paused_by = excluded.paused_by,
    since = CASE WHEN p.until > now() THEN p.since ELSE excluded.since END
WHERE p.until <= greatest(now(), excluded.until)
