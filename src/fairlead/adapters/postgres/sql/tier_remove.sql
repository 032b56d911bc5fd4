-- tier_remove: delete a tier, unless a tenant has it.
-- Takes   name
-- Returns one row: removed (0 or 1), tenants (the number that have it)
-- Locks   its row
-- Needs   tenant_lock before it; tenant_setting_tier_idx
WITH members AS MATERIALIZED (SELECT count(*) AS tenants FROM tenant_setting WHERE tier = :name),
deleted_tier AS (
    DELETE FROM tenant_tier WHERE name = :name AND (SELECT tenants FROM members) = 0 RETURNING name
)
SELECT (SELECT count(*) FROM deleted_tier) AS removed, tenants FROM members
