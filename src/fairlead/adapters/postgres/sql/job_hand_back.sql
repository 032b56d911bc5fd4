-- job_hand_back: give back jobs that run under a session although its process does not hold them.
-- Takes   session_id, held (job ids that it does hold)
-- Gives   job_id of those given back
-- Locks   their rows
-- Needs   job_running_idx. Such jobs come from a claim whose answer was lost and that was carried out late; the
--         attempt is handed back
UPDATE job SET
    state = 'available', attempt = greatest(attempt - 1, 0), lease_id = NULL, session_id = NULL, started_at = NULL
WHERE session_id = :session_id::uuid AND state = 'running' AND job_id <> ALL(:held::uuid[])
RETURNING job_id
