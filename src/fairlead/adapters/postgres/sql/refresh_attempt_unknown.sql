-- refresh_attempt_unknown: record a send of unknown outcome; the token is still served, and recovery is due in due_in_s.
-- Takes   connection_id, attempt_id, reason, due_in_s (seconds from now until something can be done), audit_id
-- Returns connection_id; no row if the refresh attempt is not ours or not in phase sent
-- Locks   the credential's row, as settle does first; then the refresh attempt's
-- Needs   the primary keys
WITH held AS MATERIALIZED (
    SELECT FROM credential WHERE connection_id = :connection_id FOR NO KEY UPDATE
),
lost AS (
    UPDATE refresh_attempt SET phase = 'unknown', reason = :reason
    FROM (SELECT count(*) FROM held) AS first
    WHERE connection_id = :connection_id AND attempt_id = :attempt_id AND phase = 'sent'
    RETURNING connection_id, tenant_id, from_generation
),
told AS (
    UPDATE credential SET
        state = 'unknown', state_reason = :reason, state_at = now(),
        due_at = now() + :due_in_s::float8 * interval '1 second'
    FROM lost
    WHERE credential.connection_id = lost.connection_id AND credential.generation = lost.from_generation
        AND credential.state IN ('active', 'unknown')
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, lost.tenant_id, 'fairlead', 'token.outcome_unknown', connection.provider,
       lost.connection_id, jsonb_build_object('generation', lost.from_generation, 'reason', :reason::text)
FROM lost JOIN connection USING (connection_id)
RETURNING connection_id;
