-- refresh_attempt_sent: set the SENT mark by compare-and-set; it is committed before the first byte leaves
-- (R6).
-- Takes   connection_ids, attempt_ids (arrays of one length)
-- Returns attempt_id, and the times of the first send and of this one, of those that may be sent; a missing one
--         must not be sent
-- Locks   the refresh attempts' rows in key order, as endpoint_take does
-- Needs   nothing. It checks the credential again, because endpoint_take may have read an older generation.
--         sent_at keeps the time of the first send, from which a grace window and the life of the token count:
--         a provider that repeats a response repeats the token of that time with its whole expires_in.
--         started_at becomes the time of the latest send: a replay waits until no send before it is in progress
WITH locked_attempt AS MATERIALIZED (
    SELECT FROM refresh_attempt WHERE connection_id = ANY(:connection_ids::uuid[])
    ORDER BY connection_id FOR NO KEY UPDATE
)
UPDATE refresh_attempt SET
    phase = 'sent', sent_at = coalesce(refresh_attempt.sent_at, now()), started_at = now(),
    replays = refresh_attempt.replays + (refresh_attempt.sent_at IS NOT NULL)::integer
FROM unnest(:connection_ids::uuid[], :attempt_ids::uuid[]) AS input (connection_id, attempt_id),
    (SELECT count(*) FROM locked_attempt) AS lock_count
WHERE refresh_attempt.connection_id = input.connection_id AND refresh_attempt.attempt_id = input.attempt_id
    AND refresh_attempt.phase = 'intent'
    AND EXISTS (
        SELECT FROM credential cr
        WHERE cr.connection_id = input.connection_id AND cr.generation = refresh_attempt.from_generation
            AND cr.state IN ('active', 'unknown'))
RETURNING refresh_attempt.attempt_id, refresh_attempt.sent_at, refresh_attempt.started_at;
