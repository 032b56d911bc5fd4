-- group_cap_list: the caps of groups, by name.
-- Takes   limit
-- Gives   group_key, tenant_id (NULL: of all tenants together), max_running
-- Locks   nothing
-- Needs   nothing: they were typed by people
SELECT group_key, nullif(tenant_id, '') AS tenant_id, max_running FROM running_cap
WHERE group_key <> ''
ORDER BY running_cap.group_key, running_cap.tenant_id
LIMIT :limit
