-- connection_remove: delete a connection with its secrets and its refresh in flight.
-- Takes   connection_id, tenant_id (its owner), actor, audit_id
-- Returns connection_id; no row if there is none
-- Locks   the credential's row first, as credential_settle does; then the connection's, the refresh attempt's,
--         and the lanes that wait for a grant
-- Needs   the foreign key, which deletes the credential; resume_after_grant
WITH locked_credential AS MATERIALIZED (
    SELECT FROM credential WHERE connection_id = :connection_id FOR NO KEY UPDATE
),
deleted_connection AS (
    DELETE FROM connection USING (SELECT count(*) FROM locked_credential) AS lock_count
    WHERE connection_id = :connection_id AND tenant_id = :tenant_id
    RETURNING connection_id, tenant_id, provider, account
),
deleted_attempt AS (
    DELETE FROM refresh_attempt USING deleted_connection
        WHERE refresh_attempt.connection_id = deleted_connection.connection_id
),
resumption AS MATERIALIZED (SELECT resume_after_grant(tenant_id, provider, account) FROM deleted_connection)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id)
SELECT :audit_id::uuid, tenant_id, :actor::text, 'connection.removed', provider, connection_id
FROM deleted_connection, resumption
RETURNING connection_id;
