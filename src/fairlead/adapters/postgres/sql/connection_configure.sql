-- connection_configure: change the settings of a connection; its grant, tokens and refresh stay as they are.
-- Takes   connection_id, tenant_id (its owner), version (at which the settings were read), settings (all), set
--         (the new and changed ones, for the audit), unset (names), actor, audit_id; sealed, key_id: the same
--         secrets, sealed for the hosts that they may go to now; seen: the sealed record that these replace
--         (all three NULL: no change)
-- Returns the connection_id; no row if there is none, or if another writer was faster
-- Locks   first the credential's row if it is sealed anew, as credential_settle does; then the connection's
-- Needs   the primary keys. The version rises even if the clock does not, because the gate uses the newest
WITH locked_credential AS MATERIALIZED (
    SELECT FROM credential WHERE connection_id = :connection_id AND sealed = :seen::bytea FOR UPDATE
),
changed_connection AS (
    UPDATE connection SET
        settings = :settings, updated_at = greatest(now(), updated_at + interval '1 microsecond')
    WHERE connection_id = :connection_id AND tenant_id = :tenant_id
        AND (extract(epoch FROM updated_at) * 1000000)::bigint = :version::bigint
        AND (:seen::bytea IS NULL OR EXISTS (SELECT FROM locked_credential))
    RETURNING connection_id, tenant_id, provider
),
resealed_credential AS (
    UPDATE credential SET sealed = :sealed::bytea, key_id = :key_id::uuid
    FROM changed_connection
    WHERE credential.connection_id = changed_connection.connection_id AND :sealed::bytea IS NOT NULL
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, tenant_id, :actor::text, 'connection.configured', provider, connection_id,
       jsonb_build_object('set', :set::jsonb, 'unset', :unset::text[])
FROM changed_connection
RETURNING connection_id;
