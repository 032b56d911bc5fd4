-- session_close: end the session of a process that stops cleanly; its jobs are available at once, without a
-- crash count.
-- Takes   session_id
-- Returns one row: freed (jobs)
-- Locks   the session's row, those of its running jobs, and their lanes if these are not ready
-- Needs   job_running_since_idx
WITH stopped_session AS (
    UPDATE worker_session SET stopped_at = now()
    WHERE session_id = :session_id AND lost_at IS NULL AND stopped_at IS NULL
),
released_job AS (
    UPDATE job SET
        state = 'available', attempt = greatest(attempt - 1, 0),
        crash_count = CASE WHEN started_at IS NULL THEN crash_count ELSE 0 END,
        lease_id = NULL, session_id = NULL, started_at = NULL
    WHERE session_id = :session_id AND state = 'running'
    RETURNING queue, lane_id, run_at, crash_count
),
lane_update AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM released_job WHERE crash_count = 0 HAVING count(*) > 0
),
notification AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', queue)) FROM (SELECT DISTINCT queue FROM released_job) AS q
)
SELECT (SELECT count(*) FROM released_job) AS freed FROM notification LEFT JOIN lane_update ON true
