-- job_cancel: a person ends a job; the write of a worker that runs it is refused from now on.
-- Takes   job_id, tenant_id (whose it must be; NULL: anybody's), result (why)
-- Gives   job_id, or no row if it is finished already or not there
-- Locks   its row, and that of the dead letter whose replay it was: the processor looks at it again
-- Needs   the primary keys
WITH done AS (
    UPDATE job SET
        state = 'cancelled', finished_at = now(), crash_count = 0, lease_id = NULL, session_id = NULL,
        unique_live = coalesce(unique_until > now(), false), result = :result::jsonb
    WHERE job_id = :job_id AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
        AND state IN ('available', 'running')
    RETURNING job_id, replay_of
),
freed AS (
    UPDATE dead_letter SET replay_job_id = NULL, action_due_at = now()
    FROM done
    WHERE dead_letter_id = done.replay_of AND replay_job_id = done.job_id AND status = 'pending_review'
)
SELECT job_id FROM done
