-- session_heartbeat: renew the leases of a process, and return the jobs that it must stop (R2, R55).
-- Takes   session_id, running (ids of the jobs that it runs, as text), trouble (what keeps it from claiming; NULL: nothing)
-- Returns cancelled (lease ids, as text, of those that are to be cancelled), data_keys_renewed_at (when a key rotation has
--         asked it to look up the data keys again; NULL: never); no row if it was declared lost or has stopped
-- Locks   its row
-- Needs   the primary keys. Arrays of text alone: asyncpg would look up any other array type first, in several round
--         trips on each new connection, and a renewal over a slow wire would come too late
UPDATE worker_session SET heartbeat_at = now(), trouble = :trouble::text
WHERE session_id = :session_id AND lost_at IS NULL AND stopped_at IS NULL
RETURNING ARRAY(
    SELECT j.lease_id::text
    FROM unnest(:running::text[]::uuid[]) AS named (job_id) CROSS JOIN LATERAL (  -- never along all that runs
        SELECT lease_id, session_id, state, result FROM job WHERE job.job_id = named.job_id OFFSET 0) AS j
    WHERE j.session_id = :session_id AND j.state = 'running' AND j.result IS NOT NULL
) AS cancelled, data_keys_renewed_at
