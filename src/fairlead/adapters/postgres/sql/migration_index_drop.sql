-- migration_index_drop: the statement that drops what a failed build of an index left.
-- Takes   index
-- Gives   text, to be run as it is, outside of a transaction; where there is no such index it does nothing
-- Locks   nothing
-- Needs   nothing; an index cannot be a parameter, so the server itself quotes its name
SELECT format('DROP INDEX CONCURRENTLY IF EXISTS %I', :index::text) AS text
