-- dead_letter_prune: delete closed entries that are old, or that a queue has beyond its bound; open ones never.
-- Takes   older_than_s, bound (entries of one queue, open and closed), limit
-- Returns one row: deleted
-- Locks   the rows deleted; never waits for another process
-- Needs   dead_letter_closed_idx, dead_letter_open_idx
WITH closed AS (
    SELECT queue, count(*) AS entries FROM dead_letter WHERE resolved_at IS NOT NULL GROUP BY queue
),
excess AS (
    SELECT closed.queue, greatest(0, closed.entries - :bound::bigint + (
        SELECT count(*) FROM dead_letter d WHERE d.queue = closed.queue AND d.status = 'pending_review')) AS entries
    FROM closed
),
old AS MATERIALIZED (
    SELECT candidate.dead_letter_id
    FROM excess CROSS JOIN LATERAL (
        (SELECT dead_letter_id FROM dead_letter d
        WHERE d.queue = excess.queue AND d.resolved_at IS NOT NULL
        ORDER BY d.resolved_at LIMIT least(excess.entries, :limit::bigint))
        UNION
        (SELECT dead_letter_id FROM dead_letter d
        WHERE d.queue = excess.queue AND d.resolved_at < now() - :older_than_s::float8 * interval '1 second'
        ORDER BY d.resolved_at LIMIT :limit::bigint)
    ) AS candidate
    LIMIT :limit::bigint
),
gone AS (
    DELETE FROM dead_letter WHERE dead_letter_id IN (
        SELECT d.dead_letter_id FROM dead_letter d
        WHERE d.dead_letter_id = ANY(ARRAY(SELECT dead_letter_id FROM old)) AND d.resolved_at IS NOT NULL
        FOR UPDATE SKIP LOCKED)
    RETURNING dead_letter_id
)
SELECT count(*) AS deleted FROM gone
