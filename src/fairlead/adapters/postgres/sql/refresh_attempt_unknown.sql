-- refresh_attempt_unknown: record a send of unknown outcome. The token stays in use, and recovery is due in
-- due_in_s.
-- Takes   connection_id, attempt_id, reason, due_in_s (seconds from now until recovery is possible), audit_id
-- Returns connection_id; no row if the refresh attempt is not the caller's, or not in phase sent
-- Locks   the credential's row first, as credential_settle does; then the refresh attempt's
-- Needs   the primary keys
WITH locked_credential AS MATERIALIZED (
    SELECT FROM credential WHERE connection_id = :connection_id FOR NO KEY UPDATE
),
unknown_attempt AS (
    UPDATE refresh_attempt SET phase = 'unknown', reason = :reason
    FROM (SELECT count(*) FROM locked_credential) AS lock_count
    WHERE connection_id = :connection_id AND attempt_id = :attempt_id AND phase = 'sent'
    RETURNING connection_id, tenant_id, from_generation
),
unknown_credential AS (
    UPDATE credential SET
        state = 'unknown', state_reason = :reason, state_at = now(),
        due_at = now() + :due_in_s::float8 * interval '1 second'
    FROM unknown_attempt
    WHERE credential.connection_id = unknown_attempt.connection_id
        AND credential.generation = unknown_attempt.from_generation
        AND credential.state IN ('active', 'unknown')
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, unknown_attempt.tenant_id, 'fairlead', 'token.outcome_unknown', connection.provider,
       unknown_attempt.connection_id, jsonb_build_object('generation', unknown_attempt.from_generation,
           'reason', :reason::text)
FROM unknown_attempt JOIN connection USING (connection_id)
RETURNING connection_id;
