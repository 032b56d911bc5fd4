-- session_key_holders: read which master keys the live processes hold.
-- Takes   seen_within_s: processes that ended within so many seconds count as well
-- Returns session_id, host, pid, master_keys (NULL: an older version, which does not report them), is_behind
--         (it was asked to read the data keys again, and has not renewed its session since)
-- Locks   nothing
-- Needs   nothing. The table is small
SELECT session_id, host, pid, master_keys, coalesce(heartbeat_at <= data_keys_renewed_at, false) AS is_behind
FROM worker_session
WHERE (lost_at IS NULL AND stopped_at IS NULL AND heartbeat_at > now() - lease)
    OR coalesce(lost_at, stopped_at, heartbeat_at) > now() - :seen_within_s::float8 * interval '1 second'
ORDER BY host, pid, session_id
