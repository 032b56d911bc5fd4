-- schema_use: set the search_path to one schema for the rest of the session.
-- Takes   schema
-- Returns nothing of interest
-- Locks   nothing
-- Needs   the schema
SELECT set_config('search_path', quote_ident(:schema::text), false)
