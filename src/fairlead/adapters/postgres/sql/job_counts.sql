-- job_counts: count jobs by label.
-- Takes   bound: count at most so many rows for available, for running, and for each finished state
-- Returns label, jobs
-- Locks   nothing
-- Needs   job_lane_idx, job_suspect_idx, job_running_since_idx, job_finished_idx
SELECT
    CASE WHEN run_at <= now() THEN 'available' WHEN attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS label,
    count(*) AS jobs
FROM (
    (SELECT run_at, attempt FROM job WHERE state = 'available' AND crash_count = 0 LIMIT :bound)
    UNION ALL
    (SELECT run_at, attempt FROM job WHERE state = 'available' AND crash_count > 0 LIMIT :bound)
) AS available_job
GROUP BY label
UNION ALL
SELECT 'running', (SELECT count(*) FROM (SELECT FROM job WHERE state = 'running' LIMIT :bound) AS j)
UNION ALL
SELECT label.state, (SELECT count(*) FROM (
        SELECT FROM job WHERE job.state = label.state AND finished_at IS NOT NULL LIMIT :bound) AS j)
FROM (VALUES ('completed'), ('cancelled'), ('discarded')) AS label (state)
