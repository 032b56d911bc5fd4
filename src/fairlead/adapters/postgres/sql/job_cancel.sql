-- job_cancel: cancel a job for the operator: a waiting one ends now, a running one once its handler has ended (R55).
-- Takes   job_id, tenant_id (the one it must be of; NULL: any), state (available or running: the one it was read in;
--         NULL: either), result (why)
-- Returns state (cancelled, or running: its worker learns of it with its heartbeat), or no row if it is in another state
-- Locks   its row, and that of the dead letter that it replayed: the processor checks it again
-- Needs   the primary keys. An open job with a result is to be cancelled. It has expired, so once it is handed back no
--         claim takes it, and job_expire ends it; until then it counts under caps
WITH asked AS (
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
freed AS (
    UPDATE dead_letter SET replay_job_id = NULL, action_due_at = now()
    FROM asked
    WHERE dead_letter_id = asked.replay_of AND replay_job_id = asked.job_id AND status = 'pending_review'
        AND asked.state = 'cancelled'
)
SELECT state FROM asked
