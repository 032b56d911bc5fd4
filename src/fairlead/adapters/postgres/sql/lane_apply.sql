-- lane_apply: bring stride and capped of lanes in step with what is set for their tenants and groups.
-- Takes   tenant_ids, group_key (NULL: all lanes of these tenants; else only those of the group, and with no
--         tenants those of the group of all)
-- Gives   nothing
-- Locks   the lanes that change, in the order of their ids; it waits for claims, which take milliseconds
-- Needs   tenant_lock before it; lane_name_tenant_idx, lane_name_group_idx, lane_find_idx; stride_of, is_capped
WITH named AS MATERIALIZED (
    SELECT lane_id FROM lane_name
    WHERE tenant_id = ANY(:tenant_ids::text[]) AND (:group_key::text IS NULL OR group_key = :group_key)
    UNION ALL
    SELECT lane_id FROM lane_name
    WHERE cardinality(:tenant_ids::text[]) = 0 AND group_key = :group_key AND group_key <> ''
),
wrong AS MATERIALIZED (
    SELECT lane_id FROM lane
    WHERE lane_id = ANY(ARRAY(SELECT lane_id FROM named))
        AND (stride <> stride_of(tenant_id COLLATE "default")  -- as in the indexes that the functions use
             OR capped <> is_capped(kind, tenant_id COLLATE "default", group_key COLLATE "default"))
    ORDER BY lane_id FOR UPDATE
)
UPDATE lane SET
    stride = stride_of(tenant_id COLLATE "default"),
    capped = is_capped(kind, tenant_id COLLATE "default", group_key COLLATE "default")
FROM wrong WHERE lane.lane_id = wrong.lane_id  -- by its id: a row that we waited for has moved
