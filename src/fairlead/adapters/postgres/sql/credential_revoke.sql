-- credential_revoke: the grant was given up on purpose; nothing refreshes it again.
-- Takes   connection_id, tenant_id (its owner), actor, reason, audit_id
-- Returns connection_id; no row if there is none or it is revoked already
-- Locks   the credential's row
-- Needs   the primary keys
WITH ended AS (
    UPDATE credential SET
        state = 'revoked', state_reason = :reason, state_at = now(), due_at = NULL
    WHERE connection_id = :connection_id AND tenant_id = :tenant_id AND state <> 'revoked'
    RETURNING connection_id, tenant_id
),
freed AS (
    DELETE FROM refresh_attempt USING ended WHERE refresh_attempt.connection_id = ended.connection_id
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, ended.tenant_id, :actor::text, 'connection.revoked', connection.provider,
       ended.connection_id, jsonb_build_object('reason', :reason::text)
FROM ended JOIN connection USING (connection_id)
RETURNING connection_id;
