-- lane_in_scope: the lanes of what can be paused as one, idle ones too, but not those that it does not hold (is_own).
-- Takes   scope (queue, kind, tenant, provider, group, rate), tenant_id (of a group: whose; '' for a shared one), key
-- Gives   lane_id
-- Locks   nothing
-- Needs   lane_name_tenant_idx, lane_name_group_idx; a queue, a kind and a provider are found by reading all lanes
WITH named AS (
    SELECT lane_id FROM lane_name WHERE :scope::text = 'tenant' AND tenant_id = :key::text
    UNION ALL
    SELECT lane_id FROM lane_name
    WHERE :scope IN ('group', 'rate') AND :tenant_id::text <> '' AND tenant_id = :tenant_id AND group_key = :key
    UNION ALL
    SELECT lane_id FROM lane_name
    WHERE :scope = 'group' AND :tenant_id = '' AND group_key = :key AND group_key <> ''
    UNION ALL
    SELECT lane_id FROM lane
    WHERE :scope IN ('queue', 'kind', 'provider')
        AND :key = CASE :scope WHEN 'queue' THEN queue WHEN 'kind' THEN kind ELSE provider END
)
SELECT lane_id FROM named
WHERE :scope = 'kind' OR NOT EXISTS (SELECT FROM lane WHERE lane.lane_id = named.lane_id AND is_own(lane.kind))
