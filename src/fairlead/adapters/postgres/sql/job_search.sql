-- job_search: list the newest matching jobs for an operator.
-- Takes   state (a state, or the label scheduled or retryable), kind, tenant_id, queue (each NULL: any), limit
-- Returns the columns of JobView, newest first
-- Locks   nothing
-- Needs   the primary key, because ids rise with time
SELECT * FROM (
    SELECT job_id, queue, kind, tenant_id, provider, group_key, tags, state,
        CASE WHEN state <> 'available' OR run_at <= now() THEN state
             WHEN attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS label,
        priority, attempt, crash_count, run_at, created_at, finished_at, expires_at, unique_key, args, failures,
        result
    FROM job
    WHERE (:kind::text IS NULL OR kind = :kind) AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
        AND (:queue::text IS NULL OR queue = :queue)
) AS job_view
WHERE :state::text IS NULL OR job_view.state = :state OR job_view.label = :state
ORDER BY job_id DESC
LIMIT :limit
