-- migration_table_exists: check whether this schema was ever migrated.
-- Takes   schema
-- Returns one row: exists
-- Locks   nothing
-- Needs   nothing. It checks for the column checksum, because other programs have a table of this name, too
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    WHERE n.nspname = :schema::text AND c.relname = 'migration' AND a.attname = 'checksum') AS exists
