-- dead_letter_resolve: close an open entry with resolution, actor and reason (Q9). If it is abandoned, end its
-- replay, too (R55).
-- Takes   dead_letter_id, tenant_id (its tenant; NULL: any), last_at (as it was read; NULL: any), status,
--         resolution, by, reason, result (of the replay)
-- Returns replay (NULL: no replay ended; cancelled, or running as in job_cancel); no row if the entry is closed
--         or missing, or was reopened since
-- Locks   the entry's row, and that of its replay
-- Needs   the primary keys
WITH closed_entry AS (
    UPDATE dead_letter SET
        status = :status, resolution = :resolution, resolved_by = :by, resolution_reason = :reason, resolved_at = now(),
        action_due_at = NULL
    WHERE dead_letter_id = :dead_letter_id AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
        AND status = 'pending_review' AND last_at = coalesce(:last_at::timestamptz, last_at)
    RETURNING status, replay_job_id
),
ended_replay AS (  -- as in job_cancel
    UPDATE job SET
        state = CASE state WHEN 'available' THEN 'cancelled' ELSE state END,
        finished_at = CASE state WHEN 'available' THEN now() END,
        crash_count = CASE state WHEN 'available' THEN 0 ELSE crash_count END,
        unique_live = unique_live AND (state = 'running' OR coalesce(unique_until > now(), false)),
        expires_at = CASE state WHEN 'available' THEN expires_at ELSE least(expires_at, now()) END,
        result = coalesce(result, :result::jsonb)
    FROM closed_entry
    WHERE job_id = closed_entry.replay_job_id AND closed_entry.status = 'abandoned' AND state IN ('available', 'running')
    RETURNING state
)
SELECT (SELECT state FROM ended_replay) AS replay FROM closed_entry
