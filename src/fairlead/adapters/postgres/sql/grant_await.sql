-- grant_await: pause the work of a connection that has lost its grant, until it has a new one.
-- Takes   tenant_id, provider, account
-- Returns connection_id, is_gone (the grant), changed_s (seconds since its state last changed); no row if there
--         is no such connection
-- Locks   the credential's row, so that no new grant arrives between the read and the pause; then the lanes of
--         its group
-- Needs   connection's unique index (tenant_id, provider, account); await_grant
WITH grant_state AS MATERIALIZED (
    SELECT cr.connection_id, cr.state IN ('needs_reauth', 'revoked') AS is_gone,
        greatest(0, extract(epoch FROM clock_timestamp() - cr.state_at))::float8 AS changed_s
    FROM connection c JOIN credential cr USING (connection_id, tenant_id)
    WHERE tenant_id = :tenant_id AND c.provider = :provider AND c.account = :account
    FOR SHARE OF cr
),
pause_set AS MATERIALIZED (
    SELECT await_grant(:tenant_id, :provider, :account) FROM grant_state WHERE is_gone
)
SELECT grant_state.connection_id, grant_state.is_gone, grant_state.changed_s FROM grant_state LEFT JOIN pause_set ON true;
