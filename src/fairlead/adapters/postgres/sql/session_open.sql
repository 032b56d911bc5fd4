-- session_open: store the session of a process that starts.
-- Takes   session_id, host, boot_id, pid_namespace, pid, process_started, version, lease_s, master_keys,
--         app_version (NULL: not stated)
-- Returns nothing
-- Locks   the new row
-- Needs   nothing. A repeat changes nothing
INSERT INTO worker_session (session_id, host, boot_id, pid_namespace, pid, process_started, version, lease, master_keys,
    app_version)
VALUES (:session_id, :host, :boot_id, :pid_namespace, :pid, :process_started, :version,
        :lease_s::float8 * interval '1 second', :master_keys::text[], :app_version)
ON CONFLICT (session_id) DO NOTHING
