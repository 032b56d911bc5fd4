-- connection_insert: store a new connection with its first grant.
-- Takes   the columns of connection and credential, offsets in seconds from now, state, state_reason, actor,
--         audit_id
-- Returns the connection_id; no row if a connection of this name exists
-- Locks   the new rows
-- Needs   connection's unique index (tenant_id, provider, account)
WITH new_connection AS (
    INSERT INTO connection (connection_id, tenant_id, provider, account, variant, account_id, client_id,
                            endpoint, settings)
    VALUES (:connection_id, :tenant_id, :provider, :account, :variant, :account_id, :client_id,
            :endpoint, :settings)
    ON CONFLICT (tenant_id, provider, account) DO NOTHING
    RETURNING connection_id, tenant_id, provider, account
),
new_credential AS (
    INSERT INTO credential (connection_id, tenant_id, provider, account, sealed, key_id, refreshable,
                            state, state_reason, granted_at, expires_at, urgent_at, critical_at, due_at)
    SELECT connection_id, tenant_id, provider, account, :sealed::bytea, :key_id::uuid, :refreshable::boolean,
           :state::text, :state_reason::text, now(),
           now() + :expires_in_s::float8 * interval '1 second',
           now() + :urgent_in_s::float8 * interval '1 second',
           now() + :critical_in_s::float8 * interval '1 second',
           now() + :due_in_s::float8 * interval '1 second'
    FROM new_connection
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id)
SELECT :audit_id::uuid, tenant_id, :actor::text, 'connection.created', provider, connection_id FROM new_connection
RETURNING connection_id;
