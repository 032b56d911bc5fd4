-- tier_set: create or change a tier.
-- Takes   name, weight, max_running (each NULL: the tier does not set it)
-- Returns nothing
-- Locks   its row
-- Needs   tenant_lock before it; tier_tenants, concurrency_cap_apply and lane_apply after it
INSERT INTO tenant_tier (name, weight, max_running) VALUES (:name, :weight, :max_running)
ON CONFLICT (name) DO UPDATE SET weight = excluded.weight, max_running = excluded.max_running
