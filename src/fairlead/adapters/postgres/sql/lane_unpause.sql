-- lane_unpause: have lanes that were parked for a pause looked at again; other pauses may hold them still.
-- Takes   lane_ids, notify
-- Gives   one row: lanes
-- Locks   those lanes, in the order of their ids
-- Needs   lane_find_idx; lane_wake_up, which everybody who claims calls
WITH held AS MATERIALIZED (
    SELECT lane_id FROM lane
    WHERE lane_id = ANY(:lane_ids::uuid[]) AND park_reason = 'pause' AND wake_at > now()
    ORDER BY lane_id FOR UPDATE
),
woken AS (
    UPDATE lane SET wake_at = clock_timestamp() FROM held WHERE lane.lane_id = held.lane_id RETURNING lane.queue
),
told AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', queue)) FROM (SELECT DISTINCT queue FROM woken) AS q WHERE :notify::boolean
)
SELECT (SELECT count(*) FROM woken) AS lanes FROM told
