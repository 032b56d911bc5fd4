-- pause_sweep: forget pauses that are over, and wake lanes that are parked for longer than any pause holds them.
-- Takes   limit (pauses forgotten, lanes woken)
-- Returns one row: pauses, lanes
-- Locks   the rows concerned; never waits
-- Needs   pause_until_idx; paused_until. It reads all lanes, as lane_sweep_page does, as a safety net: a transaction that
--         resumes may die between the deed and its lanes
WITH over AS (
    DELETE FROM pause WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM pause WHERE until <= now() ORDER BY until LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
    RETURNING scope
),
held AS MATERIALIZED (
    SELECT ctid AS tid FROM lane
    WHERE park_reason = 'pause' AND wake_at > now() + interval '1 second'
        AND wake_at IS DISTINCT FROM paused_until(
            queue COLLATE "default", kind COLLATE "default", provider COLLATE "default", tenant_id COLLATE "default",
            group_key COLLATE "default")  -- as in the index that the function uses
    LIMIT :limit::bigint FOR UPDATE SKIP LOCKED
),
woken AS (
    UPDATE lane SET wake_at = clock_timestamp() FROM held WHERE lane.ctid = held.tid RETURNING lane.lane_id
)
SELECT (SELECT count(*) FROM over) AS pauses, (SELECT count(*) FROM woken) AS lanes
