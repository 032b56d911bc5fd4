-- snapshot_oldest: who keeps the server from removing dead rows, and for how long already.
-- Takes   nothing
-- Gives   the holder of the oldest snapshot: held_s, what (a session, a prepared transaction); no row: nobody. A user
--         without pg_read_all_stats sees his own sessions only
-- Locks   nothing
-- Needs   nothing
SELECT extract(epoch FROM clock_timestamp() - held.since)::float8 AS held_s, held.what
FROM (
    SELECT xact_start AS since,
        format('session %s of %s (%s, %s)', pid, usename, coalesce(nullif(application_name, ''), 'no name'), state) AS what
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start IS NOT NULL
        AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    UNION ALL
    SELECT prepared, format('prepared transaction %s of %s', gid, owner) FROM pg_prepared_xacts
    WHERE database = current_database()
) AS held
ORDER BY held.since LIMIT 1
