-- connection_configure: other settings for a connection; grant, tokens and their refresh are not touched.
-- Takes   connection_id, tenant_id (whose it must be), version (that the settings were read at), settings (all),
--         set (those that are new or other, for the audit), unset (names), actor, audit_id
-- Gives   the connection_id; no row if there is none, or another writer was faster
-- Locks   the connection's row
-- Needs   the primary key. The version moves on even where the clock does not: the gate goes by the newest
WITH changed AS (
    UPDATE connection SET
        settings = :settings, updated_at = greatest(now(), updated_at + interval '1 microsecond')
    WHERE connection_id = :connection_id AND tenant_id = :tenant_id
        AND (extract(epoch FROM updated_at) * 1000000)::bigint = :version::bigint
    RETURNING connection_id, tenant_id, provider
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, tenant_id, :actor::text, 'connection.configured', provider, connection_id,
       jsonb_build_object('set', :set::jsonb, 'unset', :unset::text[])
FROM changed
RETURNING connection_id;
