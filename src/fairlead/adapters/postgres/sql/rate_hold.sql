-- rate_hold: pause a group until its reservation at the provider's limits. If there is one already, the earlier
-- end counts.
-- Takes   tenant_id, key (the group), for_s, reason
-- Returns nothing
-- Locks   its row
-- Needs   the primary key. Later transactions that would make a lane ready see the pause; lane_hold parks lanes
--         that are ready
INSERT INTO pause AS p (scope, tenant_id, key, until, reason, paused_by)
VALUES ('rate', :tenant_id, :key, now() + :for_s::float8 * interval '1 second', :reason, 'gate')
ON CONFLICT (scope, tenant_id, key) DO UPDATE SET
    until = excluded.until, reason = excluded.reason, since = CASE WHEN p.until > now() THEN p.since ELSE excluded.since END
WHERE p.until <= now() OR p.until > excluded.until
