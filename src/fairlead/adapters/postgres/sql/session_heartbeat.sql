-- session_heartbeat: renew the lease of all that a process holds, and tell it what it shall end (R2, R55).
-- Takes   session_id, running (ids of the jobs that it runs)
-- Gives   cancelled (lease ids of those that are to be cancelled); no row if it was declared lost or has stopped
-- Locks   its row
-- Needs   the primary keys
UPDATE worker_session SET heartbeat_at = now()
WHERE session_id = :session_id AND lost_at IS NULL AND stopped_at IS NULL
RETURNING ARRAY(
    SELECT lease_id FROM job
    WHERE job_id = ANY(:running::uuid[]) AND session_id = :session_id AND state = 'running' AND result IS NOT NULL
) AS cancelled
