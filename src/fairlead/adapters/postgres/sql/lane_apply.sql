-- lane_apply: bring stride and capped of lanes in step with what is set for their tenants and groups.
-- Takes   tenant_ids, group_key (NULL: all lanes of these tenants; else only those of the group, and with no
--         tenants those of the group of all)
-- Returns nothing
-- Locks   the lanes that change, in the order of their ids, then new caps; it waits for claims, which take milliseconds
-- Needs   tenant_lock before it, as its first statement; lane_name_tenant_idx, lane_name_group_idx; the function lane_apply
--        
SELECT lane_apply(ARRAY(
    SELECT lane_id FROM lane_name
    WHERE tenant_id = ANY(:tenant_ids::text[]) AND (:group_key::text IS NULL OR group_key = :group_key)
    UNION ALL
    SELECT lane_id FROM lane_name
    WHERE cardinality(:tenant_ids::text[]) = 0 AND group_key = :group_key AND group_key <> ''
))
