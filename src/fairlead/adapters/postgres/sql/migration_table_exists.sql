-- migration_table_exists: whether this schema was ever migrated.
-- Takes   schema
-- Returns one row: exists
-- Locks   nothing
-- Needs   nothing; other programs keep a table of this name, too, without a checksum
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    WHERE n.nspname = :schema::text AND c.relname = 'migration' AND a.attname = 'checksum') AS exists
