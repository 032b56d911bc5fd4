-- tier_tenants: the tenants of a tier.
-- Takes   tier
-- Gives   tenant_id
-- Locks   nothing
-- Needs   tenant_share_tier_idx
SELECT tenant_id FROM tenant_share WHERE tier = :tier ORDER BY tenant_id
