-- migration_table_exists: whether this schema was ever migrated.
-- Takes   nothing
-- Gives   one row: exists
-- Locks   nothing
-- Needs   nothing; only the schema we would create it in counts, not another one of the search_path
SELECT to_regclass(quote_ident(current_schema()) || '.migration') IS NOT NULL AS exists
