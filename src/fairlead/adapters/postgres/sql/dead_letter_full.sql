-- dead_letter_full: the kinds whose new work a queue refuses, because its dead letters are full of them (Q10).
-- Takes   queue, bound
-- Gives   kind: while the queue has bound open entries, those that have at least their share of them
-- Locks   nothing
-- Needs   dead_letter_open_idx, which the bound keeps small
WITH open AS (
    SELECT kind, count(*) AS entries FROM dead_letter
    WHERE queue = :queue AND status = 'pending_review'
    GROUP BY kind
)
SELECT kind FROM open
WHERE (SELECT sum(entries) FROM open) >= :bound::bigint AND entries >= (SELECT avg(entries) FROM open)
