-- job_get: read one job for an operator.
-- Takes   job_id
-- Returns the columns of JobView, or no row
-- Locks   nothing
-- Needs   the primary key
SELECT job_id, queue, kind, tenant_id, provider, group_key, tags, state,
    CASE WHEN state <> 'available' OR run_at <= now() THEN state
         WHEN attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS label,
    priority, attempt, crash_count, run_at, created_at, finished_at, expires_at, unique_key, args, failures, result
FROM job
WHERE job_id = :job_id
