-- tier_remove: delete a tier that no tenant has.
-- Takes   name
-- Returns one row: removed (0 or 1), tenants (that have it: then it stays)
-- Locks   its row
-- Needs   tenant_lock before it; tenant_setting_tier_idx
WITH members AS MATERIALIZED (SELECT count(*) AS tenants FROM tenant_setting WHERE tier = :name),
gone AS (
    DELETE FROM tenant_tier WHERE name = :name AND (SELECT tenants FROM members) = 0 RETURNING name
)
SELECT (SELECT count(*) FROM gone) AS removed, tenants FROM members
