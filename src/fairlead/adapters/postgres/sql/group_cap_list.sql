-- group_cap_list: list the caps of groups by name.
-- Takes   limit
-- Returns group_key, tenant_id (NULL: of all tenants together), max_running
-- Locks   nothing
-- Needs   nothing. Operators type them, so they are few
SELECT group_key, nullif(tenant_id, '') AS tenant_id, max_running FROM concurrency_cap
WHERE group_key <> ''
ORDER BY concurrency_cap.group_key, concurrency_cap.tenant_id
LIMIT :limit
