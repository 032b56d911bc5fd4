-- tier_tenants: list the tenants of a tier.
-- Takes   tier
-- Returns tenant_id
-- Locks   nothing
-- Needs   tenant_setting_tier_idx
SELECT tenant_id FROM tenant_setting WHERE tier = :tier ORDER BY tenant_id
