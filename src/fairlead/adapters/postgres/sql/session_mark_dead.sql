-- session_mark_dead: declare the sessions of processes lost that are proven dead (R7).
-- Takes   session_ids
-- Returns session_id of those that were open
-- Locks   their rows
-- Needs   the primary key
UPDATE worker_session SET lost_at = now()
WHERE session_id = ANY(:session_ids::uuid[]) AND lost_at IS NULL AND stopped_at IS NULL
RETURNING session_id
