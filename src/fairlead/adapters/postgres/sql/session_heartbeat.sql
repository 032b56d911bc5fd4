-- session_heartbeat: renew the leases of a process, and return the jobs that it must cancel (R2, R55).
-- Takes   session_id, running (ids of its running jobs, as text), trouble (why it cannot claim; NULL: it can)
-- Returns cancelled (lease ids, as text, of the jobs to cancel), data_keys_renewed_at (when a key rotation last
--         asked it to read the data keys again; NULL: never); no row if it was declared lost or has stopped
-- Locks   its row
-- Needs   the primary keys. All arrays are of text: asyncpg looks up any other array type in several round
--         trips on each new connection, and on a slow network the renewal would come too late
UPDATE worker_session SET heartbeat_at = now(), trouble = :trouble::text
WHERE session_id = :session_id AND lost_at IS NULL AND stopped_at IS NULL
RETURNING ARRAY(
    SELECT j.lease_id::text
    -- by key, never a scan of all running jobs
    FROM unnest(:running::text[]::uuid[]) AS running_job (job_id) CROSS JOIN LATERAL (
        SELECT lease_id, session_id, state, result FROM job WHERE job.job_id = running_job.job_id OFFSET 0) AS j
    WHERE j.session_id = :session_id AND j.state = 'running' AND j.result IS NOT NULL
) AS cancelled, data_keys_renewed_at
