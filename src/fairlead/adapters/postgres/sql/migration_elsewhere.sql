-- migration_elsewhere: the other schemas of this database that hold an installation.
-- Takes   schema (of this installation)
-- Gives   schema, by name
-- Locks   nothing
-- Needs   nothing
SELECT n.nspname AS schema
FROM pg_catalog.pg_namespace n
WHERE n.nspname <> :schema::text AND n.nspname !~ '^pg_' AND (
    SELECT count(*) FROM pg_catalog.pg_class c
    WHERE c.relnamespace = n.oid AND c.relkind = 'r' AND c.relname IN ('migration', 'worker_session', 'lane', 'job')) = 4
ORDER BY 1
