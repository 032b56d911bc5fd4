-- refresh_attempt_release: end refresh attempts that changed nothing, because they were not sent, or because
-- the response was "not processed".
-- Takes   connection_ids, attempt_ids (arrays of one length)
-- Returns id, busy: the attempt_ids that it ended (busy is false); the connection_ids with a credential that
--         another transaction has locked (busy is true)
-- Locks   the credentials' rows, then the refresh attempts', each in key order, as credential_settle does. A
--         credential that another process had declared unknown meanwhile is active again
-- Needs   nothing. A replay that changed nothing leaves the outcome of the first send unknown, so its row
--         stays. It gets another attempt_id, so that a repeat of this statement does not take the first send
--         for the replay and delete it. A row in phase unknown without a replay is the first send itself,
--         released by the process that knows its outcome
WITH input AS (
    SELECT * FROM unnest(:connection_ids::uuid[], :attempt_ids::uuid[]) AS input (connection_id, attempt_id)
),
locked_credential AS MATERIALIZED (
    SELECT connection_id FROM credential WHERE connection_id = ANY(:connection_ids::uuid[])
    ORDER BY connection_id FOR NO KEY UPDATE SKIP LOCKED
),
busy_credential AS MATERIALIZED (  -- read only if a row is missing; a deleted connection is not busy
    SELECT connection_id FROM credential
    WHERE (SELECT count(*) FROM locked_credential) < cardinality(:connection_ids::uuid[])
        AND connection_id = ANY(:connection_ids::uuid[])
            AND connection_id NOT IN (SELECT connection_id FROM locked_credential)
),
locked_attempt AS MATERIALIZED (
    SELECT connection_id FROM refresh_attempt
    WHERE connection_id = ANY(:connection_ids::uuid[]) AND connection_id NOT IN (SELECT connection_id FROM busy_credential)
    ORDER BY connection_id FOR UPDATE
),
deleted_attempt AS (
    DELETE FROM refresh_attempt USING input JOIN locked_attempt USING (connection_id)
    WHERE refresh_attempt.connection_id = input.connection_id AND refresh_attempt.attempt_id = input.attempt_id
        AND (refresh_attempt.sent_at IS NULL OR (refresh_attempt.phase IN ('sent', 'unknown')
            AND refresh_attempt.replays = 0))
    RETURNING refresh_attempt.attempt_id, refresh_attempt.connection_id, refresh_attempt.from_generation,
        refresh_attempt.phase
),
active_credential AS (
    UPDATE credential SET state = 'active', state_reason = NULL, state_at = now(), due_at = now()
    FROM deleted_attempt
    WHERE deleted_attempt.phase = 'unknown' AND credential.connection_id = deleted_attempt.connection_id
        AND credential.generation = deleted_attempt.from_generation AND credential.state = 'unknown'
),
reset_attempt AS (
    UPDATE refresh_attempt SET
        phase = 'unknown', replays = refresh_attempt.replays - (refresh_attempt.phase = 'sent')::integer,
        attempt_id = gen_random_uuid()
    FROM input JOIN locked_attempt USING (connection_id)
    WHERE refresh_attempt.connection_id = input.connection_id AND refresh_attempt.attempt_id = input.attempt_id
        AND refresh_attempt.phase <> 'unknown'
        AND refresh_attempt.sent_at IS NOT NULL AND NOT (refresh_attempt.phase = 'sent' AND refresh_attempt.replays = 0)
    RETURNING input.attempt_id
)
SELECT attempt_id AS id, false AS busy FROM deleted_attempt UNION ALL SELECT attempt_id, false FROM reset_attempt
UNION ALL SELECT connection_id, true FROM busy_credential;
