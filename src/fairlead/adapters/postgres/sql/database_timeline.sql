-- database_timeline: which history of the database this is; it changes when a stand-by was promoted.
-- Takes   nothing
-- Gives   timeline (system identifier and timeline id), or no row on a stand-by, which follows another's history
-- Locks   nothing
-- Needs   pg_control_system, pg_current_wal_lsn and pg_walfile_name (open to every role by default).
--         The control file has the timeline of the last checkpoint that was completed, minutes after a promotion;
--         the name of the file that is written to has it from the first write on. Aurora does not tell that name,
--         and loses nothing when it fails over: its servers share their storage.
SELECT s.system_identifier || '/' || CASE
    WHEN to_regproc('aurora_version') IS NOT NULL THEN (SELECT timeline_id FROM pg_control_checkpoint())
    ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
END AS timeline
FROM pg_control_system() s
WHERE NOT pg_is_in_recovery();
