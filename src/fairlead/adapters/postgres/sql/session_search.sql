-- session_search: list all processes for an operator.
-- Takes   nothing
-- Returns the columns of SessionView, the youngest first
-- Locks   nothing
-- Needs   job_running_since_idx. The table is small
WITH running AS MATERIALIZED (SELECT session_id, count(*) AS jobs FROM job WHERE state = 'running' GROUP BY session_id)
SELECT session_id, host, boot_id, pid_namespace, pid, process_started, version, app_version, started_at,
    extract(epoch FROM now() - heartbeat_at)::float8 AS heartbeat_age_s,
    extract(epoch FROM lease)::float8 AS lease_s,
    CASE WHEN lost_at IS NOT NULL THEN 'lost' WHEN stopped_at IS NOT NULL THEN 'stopped'
         WHEN heartbeat_at < now() - lease THEN 'late' ELSE 'alive' END AS state,
    coalesce(running.jobs, 0) AS running_jobs, trouble
FROM worker_session LEFT JOIN running USING (session_id)
ORDER BY started_at DESC, session_id
