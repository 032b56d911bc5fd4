-- connection_configure: other settings for a connection; grant, tokens and their refresh are not touched.
-- Takes   connection_id, tenant_id (its owner), version (that the settings were read at), settings (all),
--         set (those that are new or other, for the audit), unset (names), actor, audit_id; sealed, key_id: the same
--         secrets, sealed for where they may go by now, in place of the record seen (all NULL: that does not change)
-- Returns the connection_id; no row if there is none, or another writer was faster
-- Locks   the credential's row where that is sealed anew, as settle does first; then the connection's
-- Needs   the primary keys. The version moves on even where the clock does not: the gate goes by the newest
WITH held AS MATERIALIZED (
    SELECT FROM credential WHERE connection_id = :connection_id AND sealed = :seen::bytea FOR UPDATE
),
changed AS (
    UPDATE connection SET
        settings = :settings, updated_at = greatest(now(), updated_at + interval '1 microsecond')
    WHERE connection_id = :connection_id AND tenant_id = :tenant_id
        AND (extract(epoch FROM updated_at) * 1000000)::bigint = :version::bigint
        AND (:seen::bytea IS NULL OR EXISTS (SELECT FROM held))
    RETURNING connection_id, tenant_id, provider
),
resealed AS (
    UPDATE credential SET sealed = :sealed::bytea, key_id = :key_id::uuid
    FROM changed
    WHERE credential.connection_id = changed.connection_id AND :sealed::bytea IS NOT NULL
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, tenant_id, :actor::text, 'connection.configured', provider, connection_id,
       jsonb_build_object('set', :set::jsonb, 'unset', :unset::text[])
FROM changed
RETURNING connection_id;
