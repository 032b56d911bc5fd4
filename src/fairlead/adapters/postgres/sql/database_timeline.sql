-- database_timeline: identify the history of this database; it changes if committed work may be missing.
-- Takes   nothing
-- Returns timeline; no row on a stand-by, which follows the history of another server. It consists of the
--         system identifier, the timeline id (which a fail-over or a point-in-time recovery changes), the start
--         of the server (after the restore of a snapshot), and the ids of the database and of a table's file
--         (after the restore of a dump)
-- Locks   nothing
-- Needs   pg_control_system, pg_current_wal_lsn and pg_walfile_name, which every role may call by default. The
--         control file has the timeline of the last complete checkpoint, minutes after a promotion; the name of
--         the current WAL file has it from the first write on. Aurora does not report that name, and loses
--         nothing in a fail-over, because its servers share their storage
SELECT concat_ws('/', s.system_identifier, CASE
    WHEN to_regproc('aurora_version') IS NOT NULL THEN (SELECT timeline_id FROM pg_control_checkpoint())
    ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
END, extract(epoch FROM pg_postmaster_start_time()),
    (SELECT oid FROM pg_database WHERE datname = current_database()), pg_relation_filenode('credential')) AS timeline
FROM pg_control_system() s
WHERE NOT pg_is_in_recovery();
