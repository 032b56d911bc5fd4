-- snapshot_oldest: find the session or replica that prevents the removal of dead rows in this database, and
-- since when.
-- Takes   nothing
-- Returns one row: held_s and holder of the oldest snapshot of a session or a prepared transaction; behind (in
--         transactions, because the time is not known) and replica of the stand-by or slot that is furthest
--         behind; unseen (there are sessions of other users; only pg_read_all_stats shows their snapshots).
--         NULL: none
-- Locks   nothing
-- Needs   nothing
WITH session AS (
    SELECT xact_start AS since,
        format('session %s of %s (%s, %s)', pid, usename, coalesce(nullif(application_name, ''), 'no name'),
            state) AS description
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start IS NOT NULL
        AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND datname = current_database()
    UNION ALL
    SELECT prepared, format('prepared transaction %s of %s', gid, owner) FROM pg_prepared_xacts
    WHERE database = current_database()
),
replica AS (
    SELECT age(backend_xmin) AS behind, format('stand-by %s',
        coalesce(nullif(application_name, ''), pid::text)) AS description
    FROM pg_stat_activity WHERE backend_type = 'walsender' AND backend_xmin IS NOT NULL
    UNION ALL
    SELECT age(xmin), format('replication slot %s', slot_name) FROM pg_replication_slots WHERE xmin IS NOT NULL
),
oldest_session AS (SELECT since, description FROM session ORDER BY since LIMIT 1),
slowest_replica AS (SELECT behind, description FROM replica ORDER BY behind DESC LIMIT 1)
SELECT extract(epoch FROM clock_timestamp() - oldest_session.since)::float8 AS held_s, oldest_session.description AS holder,
    slowest_replica.behind, slowest_replica.description AS replica,
    NOT pg_has_role('pg_read_all_stats', 'USAGE') AND EXISTS (
        SELECT FROM pg_stat_activity
        WHERE coalesce(datname, current_database()) = current_database() AND NOT pg_has_role(usesysid, 'USAGE')
    ) AS unseen
FROM (SELECT) AS always LEFT JOIN oldest_session ON true LEFT JOIN slowest_replica ON true
