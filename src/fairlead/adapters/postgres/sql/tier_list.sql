-- tier_list: list all tiers by name.
-- Takes   nothing
-- Returns the columns of Tier
-- Locks   nothing
-- Needs   nothing. There are few tiers
SELECT name, weight, max_running FROM tenant_tier ORDER BY name
