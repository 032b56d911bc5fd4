-- group_cap_clear: delete the cap of a group.
-- Takes   group_key, tenant_id ('': of all tenants together)
-- Returns group_key, or no row if there was none
-- Locks   its row
-- Needs   tenant_lock before it; lane_apply after it
DELETE FROM concurrency_cap WHERE tenant_id = :tenant_id AND group_key = :group_key AND group_key <> ''
RETURNING group_key
