-- session_heartbeat: renew the lease of all that a process holds (R2).
-- Takes   session_id
-- Gives   session_id, or no row if it was declared lost or has stopped
-- Locks   its row
-- Needs   the primary key
UPDATE worker_session SET heartbeat_at = now()
WHERE session_id = :session_id AND lost_at IS NULL AND stopped_at IS NULL
RETURNING session_id
