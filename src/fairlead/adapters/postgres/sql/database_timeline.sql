-- database_timeline: which history of the database this is; it changes when a stand-by was promoted.
-- Takes   nothing
-- Gives   timeline (system identifier and timeline id)
-- Locks   nothing
-- Needs   pg_control_system and pg_control_checkpoint (open to every role by default)
SELECT s.system_identifier || '/' || c.timeline_id AS timeline
FROM pg_control_system() s, pg_control_checkpoint() c;
