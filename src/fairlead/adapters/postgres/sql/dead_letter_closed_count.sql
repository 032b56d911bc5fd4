-- dead_letter_closed_count: how many entries were closed so long ago.
-- Takes   older_than_s
-- Returns one row: entries
-- Locks   nothing
-- Needs   nothing: the bound and the retention keep entries few
SELECT count(*) AS entries FROM dead_letter WHERE resolved_at < now() - :older_than_s::float8 * interval '1 second'
