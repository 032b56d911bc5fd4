-- group_cap_set: create or change the cap of a group.
-- Takes   group_key, tenant_id ('': of all tenants together), max_running
-- Returns nothing
-- Locks   its row. It waits for a claim that counts under it, which takes milliseconds
-- Needs   tenant_lock before it; lane_apply after it
INSERT INTO concurrency_cap (tenant_id, group_key, max_running) VALUES (:tenant_id, :group_key, :max_running)
ON CONFLICT (tenant_id, group_key) DO UPDATE SET max_running = excluded.max_running
