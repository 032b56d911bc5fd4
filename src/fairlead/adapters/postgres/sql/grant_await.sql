-- grant_await: where the grant of a connection is gone, its work waits for a new one.
-- Takes   tenant_id, provider, account
-- Returns connection_id, is_gone, changed_s (since its state changed last); no row if there is no such connection
-- Locks   the credential's row, so that no new grant comes between the look and the deed; then the lanes of its group
-- Needs   connection's unique index (tenant_id, provider, account); await_grant
WITH known AS MATERIALIZED (
    SELECT cr.connection_id, cr.state IN ('needs_reauth', 'revoked') AS is_gone,
        greatest(0, extract(epoch FROM clock_timestamp() - cr.state_at))::float8 AS changed_s
    FROM connection c JOIN credential cr USING (connection_id, tenant_id)
    WHERE tenant_id = :tenant_id AND c.provider = :provider AND c.account = :account
    FOR SHARE OF cr
),
held AS MATERIALIZED (
    SELECT await_grant(:tenant_id, :provider, :account) FROM known WHERE is_gone
)
SELECT known.connection_id, known.is_gone, known.changed_s FROM known LEFT JOIN held ON true;
