-- credential_search: list connections for an operator, by tenant, provider and state.
-- Takes   tenant_id, provider, state (each NULL: any), limit
-- Returns credential_detail, by tenant, provider, account
-- Locks   nothing
-- Needs   connection's unique index for one tenant; without a tenant it reads the table up to the limit
SELECT 0 AS ord, d.*
FROM credential_detail d
WHERE (:tenant_id::text IS NULL OR d.tenant_id = :tenant_id)
    AND (:provider::text IS NULL OR d.provider = :provider)
    AND (:state::text IS NULL OR d.state = :state)
ORDER BY d.tenant_id, d.provider, d.account
LIMIT :limit;
