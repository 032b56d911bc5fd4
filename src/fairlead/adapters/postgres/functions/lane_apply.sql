-- lane_apply: update the copies of weights and caps in lanes from the settings.
-- Takes   lane_ids
-- Returns nothing
-- Locks   the lanes with copies that differ, in the order of their ids, and the caps that are new to them
-- Needs   nothing. A tier may be set for all lanes, so lanes with correct copies are not locked. From here
--         on no claim uses these lanes without their caps, so a cap that is new to a lane is counted from all
--         its jobs again
CREATE FUNCTION lane_apply(lane_ids uuid[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE lane_tids tid[]; cap_tenants text[]; cap_groups text[];
BEGIN
    lane_tids := lane_lock(ARRAY(
        SELECT input.lane_id FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id) AS input CROSS JOIN LATERAL (
            SELECT l.* FROM lane l WHERE l.lane_id = input.lane_id ORDER BY l.vtime DESC LIMIT 1) AS newest
        WHERE newest.stride <> tenant_stride(newest.tenant_id COLLATE "default")  -- the collation of the functions' indexes
            OR newest.capped <> is_capped(
                newest.kind, newest.tenant_id COLLATE "default", newest.group_key COLLATE "default")));
    WITH updated_lane AS (
        UPDATE lane SET
            stride = tenant_stride(tenant_id COLLATE "default"),
            capped = is_capped(kind, tenant_id COLLATE "default", group_key COLLATE "default")
        WHERE lane.ctid = ANY(lane_tids) RETURNING tenant_id, group_key, capped
    )
    SELECT array_agg(DISTINCT tenant_id), array_agg(DISTINCT group_key) INTO cap_tenants, cap_groups
        FROM updated_lane WHERE capped;
    UPDATE concurrency_cap SET known_by = pg_current_xact_id() WHERE known_by IS NULL;
    PERFORM FROM concurrency_cap
    WHERE tenant_id = ANY(''::text || cap_tenants) AND group_key = ANY(''::text || cap_groups)
    ORDER BY tenant_id, group_key FOR UPDATE;
    UPDATE concurrency_cap SET known_by = pg_current_xact_id(), counted_from = '-infinity'
    WHERE tenant_id = ANY(''::text || cap_tenants) AND group_key = ANY(''::text || cap_groups);
END $$;
