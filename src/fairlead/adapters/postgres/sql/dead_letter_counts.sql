-- dead_letter_counts: count open entries by category.
-- Takes   nothing
-- Returns category, entries
-- Locks   nothing
-- Needs   nothing. The bound limits the number of open entries
SELECT category, count(*) AS entries FROM dead_letter WHERE status = 'pending_review' GROUP BY category
