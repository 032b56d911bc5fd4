-- concurrency_cap_apply: update the caps in force of these tenants from their settings and their tiers.
-- Takes   tenant_ids
-- Returns nothing
-- Locks   their caps. It waits for claims that count under them, which takes milliseconds
-- Needs   tenant_lock before it; the primary keys
WITH setting AS MATERIALIZED (
    SELECT input.tenant_id, coalesce(s.max_running, t.max_running) AS max_running
    FROM unnest(:tenant_ids::text[]) AS input (tenant_id)
        LEFT JOIN tenant_setting s ON s.tenant_id = input.tenant_id
        LEFT JOIN tenant_tier t ON t.name = s.tier
),
deleted_cap AS (
    DELETE FROM concurrency_cap c USING setting
    WHERE c.tenant_id = setting.tenant_id AND c.group_key = '' AND setting.max_running IS NULL
)
INSERT INTO concurrency_cap AS c (tenant_id, group_key, max_running)
SELECT tenant_id, '', max_running FROM setting WHERE max_running IS NOT NULL ORDER BY tenant_id
ON CONFLICT (tenant_id, group_key) DO UPDATE SET max_running = excluded.max_running
WHERE c.max_running <> excluded.max_running
