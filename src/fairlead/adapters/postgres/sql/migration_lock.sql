-- migration_lock: try to become the only migration run in this database.
-- Takes   nothing
-- Returns one row: locked
-- Locks   an advisory lock until the session ends; never waits
-- Needs   a session of its own, not one of a transaction pooler
SELECT pg_try_advisory_lock(hashtextextended('fairlead.migrate', 0)) AS locked
