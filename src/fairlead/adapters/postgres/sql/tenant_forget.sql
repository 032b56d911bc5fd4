-- tenant_forget: delete a tenant's own settings.
-- Takes   tenant_id
-- Returns nothing
-- Locks   its row
-- Needs   tenant_lock before it; concurrency_cap_apply and lane_apply after it
DELETE FROM tenant_setting WHERE tenant_id = :tenant_id
