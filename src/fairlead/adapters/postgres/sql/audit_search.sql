-- audit_search: the newest records of the audit trail.
-- Takes   tenant_id (NULL: any), limit
-- Gives   at, audit_id, act, actor, tenant_id, provider, connection_id, details, newest first
-- Locks   nothing
-- Needs   audit_tenant_idx, the primary key
SELECT at, audit_id, act, actor, tenant_id, provider, connection_id, details
FROM audit
WHERE :tenant_id::text IS NULL OR tenant_id = :tenant_id
ORDER BY at DESC, audit_id DESC
LIMIT :limit
