-- migration_path: set the search_path that functions store when they are created (SET search_path FROM
-- CURRENT).
-- Takes   nothing
-- Returns nothing of interest
-- Locks   nothing
-- Needs   a transaction, and the schema as current_schema(). Temporary tables come last, so that a caller's
--         temporary tables cannot replace the real ones in a function that runs with the owner's rights
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)
