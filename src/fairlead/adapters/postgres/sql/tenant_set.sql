-- tenant_set: store a tenant's own settings.
-- Takes   tenant_id, tier, weight, max_running (each NULL: as its tier says)
-- Returns nothing; fails if there is no such tier
-- Locks   its row
-- Needs   tenant_lock before it; concurrency_cap_apply and lane_apply after it
INSERT INTO tenant_setting (tenant_id, tier, weight, max_running)
VALUES (:tenant_id, :tier, :weight, :max_running)
ON CONFLICT (tenant_id) DO UPDATE SET
    tier = excluded.tier, weight = excluded.weight, max_running = excluded.max_running
