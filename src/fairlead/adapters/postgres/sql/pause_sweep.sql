-- pause_sweep: delete pauses that have ended, and wake lanes that are parked for longer than any pause.
-- Takes   limit (pauses deleted, lanes woken)
-- Returns one row: pauses, lanes
-- Locks   the rows that it changes; never waits
-- Needs   pause_until_idx; paused_until. It reads all lanes, as lane_sweep_page does, because a process that
--         ends a pause may die before it wakes the lanes
WITH ended_pause AS (
    DELETE FROM pause WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM pause WHERE until <= now() ORDER BY until LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
    RETURNING scope
),
late_lane AS MATERIALIZED (
    SELECT ctid AS tid FROM lane
    WHERE park_reason = 'pause' AND wake_at > now() + interval '1 second'
        AND wake_at IS DISTINCT FROM paused_until(
            queue COLLATE "default", kind COLLATE "default", provider COLLATE "default", tenant_id COLLATE "default",
            group_key COLLATE "default")  -- the collation of the index that the function uses
    LIMIT :limit::bigint FOR UPDATE SKIP LOCKED
),
woken_lane AS (
    UPDATE lane SET wake_at = clock_timestamp() FROM late_lane WHERE lane.ctid = late_lane.tid RETURNING lane.lane_id
)
SELECT (SELECT count(*) FROM ended_pause) AS pauses, (SELECT count(*) FROM woken_lane) AS lanes
