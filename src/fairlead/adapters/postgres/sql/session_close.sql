-- session_close: a process ends in good order; what it still held is free at once, and that is no crash.
-- Takes   session_id
-- Returns one row: freed (jobs)
-- Locks   the session's row, those of its running jobs, and their lanes if these are not ready
-- Needs   job_running_since_idx
WITH closed AS (
    UPDATE worker_session SET stopped_at = now()
    WHERE session_id = :session_id AND lost_at IS NULL AND stopped_at IS NULL
),
freed AS (
    UPDATE job SET
        state = 'available', attempt = greatest(attempt - 1, 0),
        crash_count = CASE WHEN started_at IS NULL THEN crash_count ELSE 0 END,
        lease_id = NULL, session_id = NULL, started_at = NULL
    WHERE session_id = :session_id AND state = 'running'
    RETURNING queue, lane_id, run_at, crash_count
),
lanes AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM freed WHERE crash_count = 0 HAVING count(*) > 0
),
told AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', queue)) FROM (SELECT DISTINCT queue FROM freed) AS q
)
SELECT (SELECT count(*) FROM freed) AS freed FROM told LEFT JOIN lanes ON true
