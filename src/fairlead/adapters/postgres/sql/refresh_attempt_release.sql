-- refresh_attempt_release: give up a refresh attempt that changed nothing: not sent, or answered "not processed".
-- Takes   connection_ids, attempt_ids (arrays of one length)
-- Returns id, busy: the attempt_ids that were ours; and the connection_ids with a credential locked by others
-- Locks   the credentials' rows, then the refresh attempts', each in key order, as settle does. A credential that others had
--         meanwhile declared unknown is active again
-- Needs   a replay that changed nothing leaves the first send's outcome unknown, so its row stays. It gets
--         another attempt_id: asked twice, this must not take the first send for the replay, and forget it.
--         Unknown without a replay is the first send itself, by the process that knows it changed nothing
WITH wanted AS (
    SELECT * FROM unnest(:connection_ids::uuid[], :attempt_ids::uuid[]) AS w (connection_id, attempt_id)
),
credentials AS MATERIALIZED (
    SELECT connection_id FROM credential WHERE connection_id = ANY(:connection_ids::uuid[])
    ORDER BY connection_id FOR NO KEY UPDATE SKIP LOCKED
),
busy AS MATERIALIZED (  -- only read if a row is missing; a deleted connection is not busy
    SELECT connection_id FROM credential
    WHERE (SELECT count(*) FROM credentials) < cardinality(:connection_ids::uuid[])
        AND connection_id = ANY(:connection_ids::uuid[]) AND connection_id NOT IN (SELECT connection_id FROM credentials)
),
held AS MATERIALIZED (
    SELECT connection_id FROM refresh_attempt
    WHERE connection_id = ANY(:connection_ids::uuid[]) AND connection_id NOT IN (SELECT connection_id FROM busy)
    ORDER BY connection_id FOR UPDATE
),
gone AS (
    DELETE FROM refresh_attempt USING wanted JOIN held USING (connection_id)
    WHERE refresh_attempt.connection_id = wanted.connection_id AND refresh_attempt.attempt_id = wanted.attempt_id
        AND (refresh_attempt.sent_at IS NULL OR (refresh_attempt.phase IN ('sent', 'unknown')
            AND refresh_attempt.replays = 0))
    RETURNING refresh_attempt.attempt_id, refresh_attempt.connection_id, refresh_attempt.from_generation,
        refresh_attempt.phase
),
known AS (
    UPDATE credential SET state = 'active', state_reason = NULL, state_at = now(), due_at = now()
    FROM gone
    WHERE gone.phase = 'unknown' AND credential.connection_id = gone.connection_id
        AND credential.generation = gone.from_generation AND credential.state = 'unknown'
),
kept AS (
    UPDATE refresh_attempt SET
        phase = 'unknown', replays = refresh_attempt.replays - (refresh_attempt.phase = 'sent')::integer,
        attempt_id = gen_random_uuid()
    FROM wanted JOIN held USING (connection_id)
    WHERE refresh_attempt.connection_id = wanted.connection_id AND refresh_attempt.attempt_id = wanted.attempt_id
        AND refresh_attempt.phase <> 'unknown'
        AND refresh_attempt.sent_at IS NOT NULL AND NOT (refresh_attempt.phase = 'sent' AND refresh_attempt.replays = 0)
    RETURNING wanted.attempt_id
)
SELECT attempt_id AS id, false AS busy FROM gone UNION ALL SELECT attempt_id, false FROM kept
UNION ALL SELECT connection_id, true FROM busy;
