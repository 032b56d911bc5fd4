-- schema_create: build the statement that creates the schema of all tables.
-- Takes   schema
-- Returns text: the statement to run
-- Locks   nothing
-- Needs   nothing. A schema cannot be a parameter, so the server quotes its name
SELECT format('CREATE SCHEMA IF NOT EXISTS %I', :schema::text) AS text
