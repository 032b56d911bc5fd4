-- session_local: list the open sessions of the other processes of this boot and pid namespace.
-- Takes   boot_id, pid_namespace, pid (the caller's own)
-- Returns session_id, host, boot_id, pid_namespace, pid, process_started
-- Locks   nothing
-- Needs   worker_session_open_idx
SELECT session_id, host, boot_id, pid_namespace, pid, process_started
FROM worker_session
WHERE boot_id = :boot_id AND pid_namespace = :pid_namespace AND pid <> :pid
    AND lost_at IS NULL AND stopped_at IS NULL
