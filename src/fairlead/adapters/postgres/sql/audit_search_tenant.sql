-- audit_search_tenant: the newest records of the audit trail about one tenant.
-- Takes   tenant_id, limit
-- Returns at, audit_id, act, actor, tenant_id, provider, connection_id, details, newest first
-- Locks   nothing
-- Needs   audit_tenant_idx
SELECT at, audit_id, act, actor, tenant_id, provider, connection_id, details
FROM audit
WHERE tenant_id = :tenant_id
ORDER BY at DESC
LIMIT :limit
