-- lane_apply: bring the copies of weights and caps in lanes in step with what is set.
-- Takes   lane_ids
-- Returns nothing
-- Locks   the lanes that are out of step, in the order of their ids, and the caps that are new to them
-- Needs   nothing. A tier may be set for all lanes, so those in step are not locked. From here on no claim uses
--         the lanes without their caps, so a cap that is new to a lane gets counted anew
CREATE FUNCTION lane_apply(lane_ids uuid[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE mine tid[]; tenants text[]; groups text[];
BEGIN
    mine := lane_locked(ARRAY(
        SELECT named.lane_id FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id) AS named CROSS JOIN LATERAL (
            SELECT l.* FROM lane l WHERE l.lane_id = named.lane_id ORDER BY l.vtime DESC LIMIT 1) AS newest
        WHERE newest.stride <> stride_of(newest.tenant_id COLLATE "default")  -- as in the functions' indexes
            OR newest.capped <> is_capped(
                newest.kind, newest.tenant_id COLLATE "default", newest.group_key COLLATE "default")));
    WITH moved AS (
        UPDATE lane SET
            stride = stride_of(tenant_id COLLATE "default"),
            capped = is_capped(kind, tenant_id COLLATE "default", group_key COLLATE "default")
        WHERE lane.ctid = ANY(mine) RETURNING tenant_id, group_key, capped
    )
    SELECT array_agg(DISTINCT tenant_id), array_agg(DISTINCT group_key) INTO tenants, groups FROM moved WHERE capped;
    UPDATE concurrency_cap SET known_by = pg_current_xact_id() WHERE known_by IS NULL;
    PERFORM FROM concurrency_cap
    WHERE tenant_id = ANY(''::text || tenants) AND group_key = ANY(''::text || groups)
    ORDER BY tenant_id, group_key FOR UPDATE;
    UPDATE concurrency_cap SET known_by = pg_current_xact_id(), counted_from = '-infinity'
    WHERE tenant_id = ANY(''::text || tenants) AND group_key = ANY(''::text || groups);
END $$;
