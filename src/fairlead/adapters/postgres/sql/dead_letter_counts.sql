-- dead_letter_counts: open entries by category.
-- Takes   nothing
-- Returns category, entries
-- Locks   nothing
-- Needs   nothing: the bound keeps open entries few
SELECT category, count(*) AS entries FROM dead_letter WHERE status = 'pending_review' GROUP BY category
