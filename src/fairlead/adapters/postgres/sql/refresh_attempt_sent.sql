-- refresh_attempt_sent: the SENT mark, by compare-and-set, committed before the first byte leaves (R6).
-- Takes   connection_ids, attempt_ids (arrays of one length)
-- Returns attempt_id, and the time of the first send and of this, of those that may be sent; a missing one must
--         not send
-- Locks   the refresh attempt rows, in key order, as endpoint_take does of those that it may not have
-- Needs   looks at the credential again: endpoint_take may have read an older generation.
--         sent_at keeps the first send: a grace window is counted from there, and the life of the token too,
--         as a provider that repeats an answer repeats the token of that time with its whole expires_in.
--         started_at becomes that of the latest: a replay waits until no send before it is under way
WITH held AS MATERIALIZED (
    SELECT FROM refresh_attempt WHERE connection_id = ANY(:connection_ids::uuid[])
    ORDER BY connection_id FOR NO KEY UPDATE
)
UPDATE refresh_attempt SET
    phase = 'sent', sent_at = coalesce(refresh_attempt.sent_at, now()), started_at = now(),
    replays = refresh_attempt.replays + (refresh_attempt.sent_at IS NOT NULL)::integer
FROM unnest(:connection_ids::uuid[], :attempt_ids::uuid[]) AS wanted (connection_id, attempt_id),
    (SELECT count(*) FROM held) AS first
WHERE refresh_attempt.connection_id = wanted.connection_id AND refresh_attempt.attempt_id = wanted.attempt_id
    AND refresh_attempt.phase = 'intent'
    AND EXISTS (
        SELECT FROM credential cr
        WHERE cr.connection_id = wanted.connection_id AND cr.generation = refresh_attempt.from_generation
            AND cr.state IN ('active', 'unknown'))
RETURNING refresh_attempt.attempt_id, refresh_attempt.sent_at, refresh_attempt.started_at;
