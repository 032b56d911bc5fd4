-- pause_set: store a pause. If there is one already, the later end counts, with its reason.
-- Takes   scope, tenant_id ('' except for the group of one tenant), key, for_s (NULL: until it is resumed),
--         reason, by
-- Returns nothing
-- Locks   its row
-- Needs   the primary key. Later transactions that would make a lane ready see the pause; lane_pause parks
--         lanes that are ready
INSERT INTO pause AS p (scope, tenant_id, key, until, reason, paused_by)
VALUES (:scope, :tenant_id, :key, coalesce(now() + :for_s::float8 * interval '1 second', 'infinity'), :reason, :by)
ON CONFLICT (scope, tenant_id, key) DO UPDATE SET
    until = excluded.until, reason = excluded.reason, paused_by = excluded.paused_by,
    since = CASE WHEN p.until > now() THEN p.since ELSE excluded.since END
WHERE p.until <= greatest(now(), excluded.until)
