-- schema_create: the statement that creates the one schema of all our tables.
-- Takes   schema
-- Returns text, to be run as it is
-- Locks   nothing
-- Needs   nothing; a schema cannot be a parameter, so the server itself quotes its name
SELECT format('CREATE SCHEMA IF NOT EXISTS %I', :schema::text) AS text
