-- migration_index_drop: the statement that drops what a failed build of an index left.
-- Takes   index
-- Returns text, to be run as it is, outside of a transaction; where our schema has no such index it does nothing
-- Locks   nothing
-- Needs   nothing; an index cannot be a parameter, so the server itself quotes its name. Another schema in the path may
--         have one of this name, that is in use
SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %I.%I', current_schema(), :index::text) AS text
