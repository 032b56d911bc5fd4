-- session_open: a process begins to take part.
-- Takes   session_id, host, boot_id, pid_namespace, pid, process_started, version, lease_s, master_keys (NULL: not said)
-- Gives   nothing
-- Locks   the new row
-- Needs   nothing; asked again, it changes nothing
INSERT INTO worker_session (session_id, host, boot_id, pid_namespace, pid, process_started, version, lease, master_keys)
VALUES (:session_id, :host, :boot_id, :pid_namespace, :pid, :process_started, :version,
        :lease_s::float8 * interval '1 second', :master_keys::text[])
ON CONFLICT (session_id) DO NOTHING
