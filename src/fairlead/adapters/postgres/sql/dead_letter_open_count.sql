-- dead_letter_open_count: count the open entries of a queue.
-- Takes   queue
-- Returns one row: entries
-- Locks   nothing
-- Needs   dead_letter_open_idx, which the bound keeps small
SELECT count(*) AS entries FROM dead_letter WHERE queue = :queue AND status = 'pending_review'
