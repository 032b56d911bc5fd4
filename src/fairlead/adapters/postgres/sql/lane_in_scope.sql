-- lane_in_scope: the lanes of what can be paused as one, idle ones too, but not those that it does not hold (is_own).
-- Takes   scope (queue, kind, tenant, provider, group, rate), tenant_id (of a group: its tenant; '' for a shared one), key
-- Returns lane_id
-- Locks   nothing
-- Needs   lane_name_tenant_idx, lane_name_group_idx; the function lane_is_internal; a queue, a
--         kind and a provider are found by reading all lanes
SELECT lane_id FROM (
    SELECT lane_id FROM lane_name WHERE :scope::text = 'tenant' AND tenant_id = :key::text
    UNION ALL
    SELECT lane_id FROM lane_name
    WHERE :scope IN ('group', 'rate') AND :tenant_id::text <> '' AND tenant_id = :tenant_id AND group_key = :key
    UNION ALL
    SELECT lane_id FROM lane_name
    WHERE :scope = 'group' AND :tenant_id = '' AND group_key = :key AND group_key <> ''
) AS named
WHERE NOT lane_is_internal(lane_id)
UNION ALL
SELECT lane_id FROM lane
WHERE :scope IN ('queue', 'kind', 'provider')
    AND :key = CASE :scope WHEN 'queue' THEN queue WHEN 'kind' THEN kind ELSE provider END
    AND (:scope = 'kind' OR NOT is_internal_kind(kind))
