-- lane_in_scope: list the lanes that a pause of this scope parks, idle ones too. fairlead's own work is left
-- out, unless the pause is of its kind.
-- Takes   scope (queue, kind, tenant, provider, group, rate), tenant_id (of a group: its tenant; '' for a
--         shared one), key
-- Returns lane_id
-- Locks   nothing
-- Needs   lane_name_tenant_idx, lane_name_group_idx; the function lane_is_internal. For a queue, a kind and a
--         provider it reads all lanes
SELECT lane_id FROM (
    SELECT lane_id FROM lane_name WHERE :scope::text = 'tenant' AND tenant_id = :key::text
    UNION ALL
    SELECT lane_id FROM lane_name
    WHERE :scope IN ('group', 'rate') AND :tenant_id::text <> '' AND tenant_id = :tenant_id AND group_key = :key
    UNION ALL
    SELECT lane_id FROM lane_name
    WHERE :scope = 'group' AND :tenant_id = '' AND group_key = :key AND group_key <> ''
) AS scope_name
WHERE NOT lane_is_internal(lane_id)
UNION ALL
SELECT lane_id FROM lane
WHERE :scope IN ('queue', 'kind', 'provider')
    AND :key = CASE :scope WHEN 'queue' THEN queue WHEN 'kind' THEN kind ELSE provider END
    AND (:scope = 'kind' OR NOT is_internal_kind(kind))
