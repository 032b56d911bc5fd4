-- schema_exists: whether there is a schema of this name.
-- Takes   schema
-- Gives   one row: exists
-- Locks   nothing
-- Needs   nothing. CREATE SCHEMA IF NOT EXISTS asks for the right to create one even where it exists
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = :schema::text) AS exists
