-- migration_elsewhere: list the other schemas of this database that hold an installation.
-- Takes   schema (of this installation)
-- Returns schema, by name
-- Locks   nothing
-- Needs   nothing. Schemas of untrusted owners (schema_exists) do not count, because any role that may create a
--         schema could make one look like an installation
SELECT n.nspname AS schema
FROM pg_catalog.pg_namespace n
    JOIN pg_catalog.pg_roles o ON o.oid = n.nspowner
    JOIN pg_catalog.pg_database d ON d.datname = current_database()
WHERE n.nspname <> :schema::text AND n.nspname !~ '^pg_' AND (
    SELECT count(*) FROM pg_catalog.pg_class c
    WHERE c.relnamespace = n.oid AND c.relkind = 'r' AND c.relname IN ('migration', 'worker_session', 'lane', 'job')) = 4
    AND (o.rolsuper OR o.rolcreaterole OR o.rolname = 'pg_database_owner' OR pg_has_role(o.oid, d.datdba, 'USAGE')
        OR pg_has_role(current_user, o.oid, 'MEMBER'))
ORDER BY 1
