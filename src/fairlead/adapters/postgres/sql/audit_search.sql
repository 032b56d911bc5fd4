-- audit_search: the newest records of the audit trail, of all tenants.
-- Takes   limit
-- Returns at, audit_id, act, actor, tenant_id, provider, connection_id, details, newest first
-- Locks   nothing
-- Needs   the primary key: ids rise with time
SELECT at, audit_id, act, actor, tenant_id, provider, connection_id, details
FROM audit
ORDER BY audit_id DESC
LIMIT :limit
