-- tenant_list: list tenants with settings of their own, by name.
-- Takes   tenant_id (NULL: all), limit
-- Returns the columns of TenantShare
-- Locks   nothing
-- Needs   the primary key
SELECT tenant_id, tier, weight, max_running FROM tenant_setting
WHERE :tenant_id::text IS NULL OR tenant_id = :tenant_id
ORDER BY tenant_id
LIMIT :limit
