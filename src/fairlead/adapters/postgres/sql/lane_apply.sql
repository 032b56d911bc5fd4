-- lane_apply: update the copies of weights and caps (stride, capped) in lanes from the settings of their
-- tenants and groups.
-- Takes   tenant_ids; group_key (NULL: all lanes of these tenants; else only those of the group, of all tenants
--         if tenant_ids is empty)
-- Returns nothing
-- Locks   the lanes that change, in the order of their ids, then new caps. It waits for claims, which takes
--         milliseconds
-- Needs   tenant_lock before it, as the first statement; lane_name_tenant_idx, lane_name_group_idx; the
--         function lane_apply
SELECT lane_apply(ARRAY(
    SELECT lane_id FROM lane_name
    WHERE tenant_id = ANY(:tenant_ids::text[]) AND (:group_key::text IS NULL OR group_key = :group_key)
    UNION ALL
    SELECT lane_id FROM lane_name
    WHERE cardinality(:tenant_ids::text[]) = 0 AND group_key = :group_key AND group_key <> ''
))
