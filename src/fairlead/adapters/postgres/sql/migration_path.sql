-- migration_path: the search_path that functions take over (SET search_path FROM CURRENT) when they are created.
-- Takes   nothing
-- Returns nothing of interest
-- Locks   nothing
-- Needs   a transaction, and the schema as current_schema(). Temporary tables come last, so that a caller's do not
--         decide what runs with other rights
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)
