-- dead_letter_closed_count: count the entries that were closed longer ago than older_than_s.
-- Takes   older_than_s
-- Returns one row: entries
-- Locks   nothing
-- Needs   nothing. The bound and the retention limit the number of entries
SELECT count(*) AS entries FROM dead_letter WHERE resolved_at < now() - :older_than_s::float8 * interval '1 second'
