-- job_cancel: a person ends a job; the write of a worker that runs it is refused from now on.
-- Takes   job_id, failure (what to keep in the history)
-- Gives   job_id, or no row if it is finished already or not there
-- Locks   its row, and that of the dead letter whose replay it was: the processor looks at it again
-- Needs   the primary key; dead_letter_replay_idx for replays
WITH done AS (
    UPDATE job SET
        state = 'cancelled', finished_at = now(), crash_count = 0, lease_id = NULL, session_id = NULL,
        unique_live = coalesce(unique_until > now(), false), failures = failure_added(failures, :failure::jsonb)
    WHERE job_id = :job_id AND state IN ('available', 'running')
    RETURNING job_id, replay_of
),
freed AS (
    UPDATE dead_letter SET replay_job_id = NULL, action_due_at = now()
    WHERE replay_job_id = ANY(ARRAY(SELECT job_id FROM done WHERE replay_of IS NOT NULL))
        AND status = 'pending_review'
)
SELECT job_id FROM done
