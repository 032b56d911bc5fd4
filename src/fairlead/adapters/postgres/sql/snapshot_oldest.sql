-- snapshot_oldest: the session or replica that keeps dead rows of this database from being removed, and since when.
-- Takes   nothing
-- Returns one row: held_s and holder of the oldest snapshot of a session or a prepared transaction; behind (in
--         transactions, as nobody knows since when) and replica of the stand-by or the slot that is furthest behind;
--         unseen: there are sessions of other users, with snapshots that only pg_read_all_stats shows. NULL: none
-- Locks   nothing
-- Needs   nothing
WITH session AS (
    SELECT xact_start AS since,
        format('session %s of %s (%s, %s)', pid, usename, coalesce(nullif(application_name, ''), 'no name'), state) AS what
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start IS NOT NULL
        AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND datname = current_database()
    UNION ALL
    SELECT prepared, format('prepared transaction %s of %s', gid, owner) FROM pg_prepared_xacts
    WHERE database = current_database()
),
replica AS (
    SELECT age(backend_xmin) AS behind, format('stand-by %s', coalesce(nullif(application_name, ''), pid::text)) AS what
    FROM pg_stat_activity WHERE backend_type = 'walsender' AND backend_xmin IS NOT NULL
    UNION ALL
    SELECT age(xmin), format('replication slot %s', slot_name) FROM pg_replication_slots WHERE xmin IS NOT NULL
),
oldest AS (SELECT since, what FROM session ORDER BY since LIMIT 1),
furthest AS (SELECT behind, what FROM replica ORDER BY behind DESC LIMIT 1)
SELECT extract(epoch FROM clock_timestamp() - oldest.since)::float8 AS held_s, oldest.what AS holder,
    furthest.behind, furthest.what AS replica,
    NOT pg_has_role('pg_read_all_stats', 'USAGE') AND EXISTS (
        SELECT FROM pg_stat_activity
        WHERE coalesce(datname, current_database()) = current_database() AND NOT pg_has_role(usesysid, 'USAGE')
    ) AS unseen
FROM (SELECT) AS always LEFT JOIN oldest ON true LEFT JOIN furthest ON true
