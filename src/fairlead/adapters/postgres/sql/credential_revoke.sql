-- credential_revoke: mark a connection revoked on purpose; nothing refreshes it again.
-- Takes   connection_id, tenant_id (its owner), actor, reason, audit_id
-- Returns connection_id; no row if there is none, or if it is revoked already
-- Locks   the credential's row
-- Needs   the primary keys
WITH revoked_credential AS (
    UPDATE credential SET
        state = 'revoked', state_reason = :reason, state_at = now(), due_at = NULL
    WHERE connection_id = :connection_id AND tenant_id = :tenant_id AND state <> 'revoked'
    RETURNING connection_id, tenant_id
),
deleted_attempt AS (
    DELETE FROM refresh_attempt USING revoked_credential
        WHERE refresh_attempt.connection_id = revoked_credential.connection_id
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, revoked_credential.tenant_id, :actor::text, 'connection.revoked', connection.provider,
       revoked_credential.connection_id, jsonb_build_object('reason', :reason::text)
FROM revoked_credential JOIN connection USING (connection_id)
RETURNING connection_id;
