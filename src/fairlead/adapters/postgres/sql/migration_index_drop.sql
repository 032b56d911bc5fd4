-- migration_index_drop: build the statement that drops the rest of a failed index build.
-- Takes   index
-- Returns text: the statement to run outside of a transaction; it does nothing if the current schema has no
--         such index
-- Locks   nothing
-- Needs   nothing. An index cannot be a parameter, so the server quotes its name. It names the schema, because
--         another schema in the search_path may have an index of this name that is in use
SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %I.%I', current_schema(), :index::text) AS text
