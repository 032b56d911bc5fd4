-- job_cancel: cancel a job for the operator: a waiting one now, a running one when its handler ends (R55).
-- Takes   job_id, tenant_id (its tenant; NULL: any), state (in which it was read: available or running; NULL:
--         either), result (why)
-- Returns state (cancelled; or running: its worker reads the request with its next heartbeat); no row if it is
--         in another state
-- Locks   its row, and that of the dead letter that it replays, which the processor then checks again
-- Needs   the primary keys. An open job with a result is to be cancelled. It has expired, so once it is
--         released no claim takes it, and job_expire ends it; until then caps count it
WITH cancelled_job AS (
    UPDATE job SET
        state = CASE state WHEN 'available' THEN 'cancelled' ELSE state END,
        finished_at = CASE state WHEN 'available' THEN now() END,
        crash_count = CASE state WHEN 'available' THEN 0 ELSE crash_count END,
        unique_live = unique_live AND (state = 'running' OR coalesce(unique_until > now(), false)),
        expires_at = CASE state WHEN 'available' THEN expires_at ELSE least(expires_at, now()) END,
        result = coalesce(result, :result::jsonb)
    WHERE job_id = :job_id AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
        AND state IN ('available', 'running') AND state = coalesce(:state::text, state)
    RETURNING job_id, replay_of, state
),
due_entry AS (
    UPDATE dead_letter SET replay_job_id = NULL, action_due_at = now()
    FROM cancelled_job
    WHERE dead_letter_id = cancelled_job.replay_of AND replay_job_id = cancelled_job.job_id AND status = 'pending_review'
        AND cancelled_job.state = 'cancelled'
)
SELECT state FROM cancelled_job
