-- database_timeline: which history of the database this is; it changes where committed work may be missing.
-- Takes   nothing
-- Returns timeline, or no row on a stand-by, which follows another's history: system identifier, timeline id
--         (another after a fail-over or a recovery to a moment), start of the server (after the restore of a
--         snapshot), and the identity of the database and of the table's file (after the restore of a dump)
-- Locks   nothing
-- Needs   pg_control_system, pg_current_wal_lsn and pg_walfile_name (open to every role by default).
--         The control file has the timeline of the last checkpoint that was completed, minutes after a promotion;
--         the name of the file that is written to has it from the first write on. Aurora does not report that name,
--         and loses nothing when it fails over: its servers share their storage.
SELECT concat_ws('/', s.system_identifier, CASE
    WHEN to_regproc('aurora_version') IS NOT NULL THEN (SELECT timeline_id FROM pg_control_checkpoint())
    ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
END, extract(epoch FROM pg_postmaster_start_time()),
    (SELECT oid FROM pg_database WHERE datname = current_database()), pg_relation_filenode('credential')) AS timeline
FROM pg_control_system() s
WHERE NOT pg_is_in_recovery();
