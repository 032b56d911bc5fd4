-- lane_hold: park the lanes of a group until its turn at the provider's limits, or until what holds them longer.
-- Takes   lane_ids, and the group's tenant_id, key
-- Gives   nothing
-- Locks   the hold's row, so that nobody ends it between the look and the deed; the lanes in the order of their
--         ids: it waits for claims, which hold lanes for some milliseconds
-- Needs   lane_find_idx; paused_until. An earlier turn makes lanes wake earlier, which lane_pause does not
WITH mine AS MATERIALIZED (
    SELECT until FROM pause
    WHERE scope = 'rate' AND tenant_id = :tenant_id AND key = :key AND until > now() FOR SHARE
),
held AS MATERIALIZED (
    SELECT l.lane_id, paused_until(
            l.queue COLLATE "default", l.kind COLLATE "default", l.provider COLLATE "default",
            l.tenant_id COLLATE "default", l.group_key COLLATE "default") AS until  -- as in the function's index
    FROM lane l CROSS JOIN mine
    WHERE l.lane_id = ANY(:lane_ids::uuid[])
    ORDER BY l.lane_id FOR UPDATE OF l
)
UPDATE lane SET state = 'parked', park_reason = 'pause', wake_at = held.until
FROM held
WHERE lane.lane_id = held.lane_id AND held.until IS NOT NULL
    AND (lane.park_reason IS DISTINCT FROM 'pause' OR lane.wake_at IS DISTINCT FROM held.until)
