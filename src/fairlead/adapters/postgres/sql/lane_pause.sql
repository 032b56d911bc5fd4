-- lane_pause: park lanes of a pause that is in force, whatever state they are in.
-- Takes   lane_ids, and the pause's scope, tenant_id, key
-- Gives   nothing
-- Locks   the pause's row, so that nobody resumes it between the look and the deed; the lanes in the order of
--         their ids: it waits for claims, which hold lanes for some milliseconds
-- Needs   lane_find_idx. Idle lanes too: who would make one ready finds that it has changed under his hands
WITH mine AS MATERIALIZED (
    SELECT until FROM pause
    WHERE scope = :scope AND tenant_id = :tenant_id AND key = :key AND until > now() FOR SHARE
),
held AS MATERIALIZED (
    SELECT l.lane_id, mine.until FROM lane l CROSS JOIN mine
    WHERE l.lane_id = ANY(:lane_ids::uuid[]) AND (l.park_reason IS DISTINCT FROM 'pause' OR l.wake_at < mine.until)
    ORDER BY l.lane_id FOR UPDATE OF l
)
UPDATE lane SET state = 'parked', park_reason = 'pause', wake_at = held.until
FROM held WHERE lane.lane_id = held.lane_id  -- by its id: a row that we waited for has moved
