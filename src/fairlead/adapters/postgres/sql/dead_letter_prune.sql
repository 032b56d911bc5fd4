-- dead_letter_prune: delete closed entries that are old, or that exceed the bound of their queue. Open ones
-- stay.
-- Takes   older_than_s, bound (entries of one queue, open and closed), limit
-- Returns one row: deleted
-- Locks   the rows that it deletes; never waits for another process
-- Needs   dead_letter_closed_idx, dead_letter_open_idx
WITH closed_entries AS (
    SELECT queue, count(*) AS entries FROM dead_letter WHERE resolved_at IS NOT NULL GROUP BY queue
),
excess AS (
    SELECT closed_entries.queue, greatest(0, closed_entries.entries - :bound::bigint + (
        SELECT count(*) FROM dead_letter d WHERE d.queue = closed_entries.queue AND d.status = 'pending_review')) AS entries
    FROM closed_entries
),
expired_entry AS MATERIALIZED (
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
deleted_entry AS (
    DELETE FROM dead_letter WHERE dead_letter_id IN (
        SELECT d.dead_letter_id FROM dead_letter d
        WHERE d.dead_letter_id = ANY(ARRAY(SELECT dead_letter_id FROM expired_entry)) AND d.resolved_at IS NOT NULL
        FOR UPDATE SKIP LOCKED)
    RETURNING dead_letter_id
)
SELECT count(*) AS deleted FROM deleted_entry
