-- tenant_forget: delete a tenant's own settings.
-- Takes   tenant_id
-- Gives   nothing
-- Locks   its row
-- Needs   tenant_lock before it; running_cap_apply and lane_apply after it
DELETE FROM tenant_share WHERE tenant_id = :tenant_id
