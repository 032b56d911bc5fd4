-- job_retry_now: make an available job due now.
-- Takes   job_id
-- Gives   job_id, or no row if it is not available
-- Locks   its row
-- Needs   the primary key
WITH due AS (
    UPDATE job SET run_at = least(run_at, now()) WHERE job_id = :job_id AND state = 'available'
    RETURNING job_id, queue
)
SELECT job_id, pg_notify('fairlead_job', queue) FROM due
