-- lane_sweep_page: repair one page of lanes: their copies of weights and caps, and pauses for which they are
-- not parked.
-- Takes   behind: the last lane of the page before; most: the length of the page
-- Returns last: the last lane of this page (NULL: it was the final page); parked: the number of lanes that it
--         parked
-- Locks   the lanes that it repairs; passes over locked ones
-- Needs   nothing. Joins find the few lanes with a weight, a cap or a pause, and it calls the functions only
--         for those: three calls for each lane were nine tenths of the cost
CREATE FUNCTION lane_sweep_page(behind uuid, most integer, OUT last uuid, OUT parked integer) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_bitmapscan = off
AS $$
DECLARE page tid[]; lane_count integer;
BEGIN
    SELECT array_agg(l.tid), (array_agg(l.lane_id ORDER BY l.lane_id))[count(*)], count(*) INTO page, last,
        lane_count FROM (
        SELECT page_name.lane_id, newest.tid
        FROM (SELECT n.lane_id FROM lane_name n WHERE n.lane_id > behind ORDER BY n.lane_id LIMIT most) AS page_name
            LEFT JOIN LATERAL (
                SELECT lane.ctid AS tid FROM lane WHERE lane.lane_id = page_name.lane_id
                ORDER BY lane.vtime DESC LIMIT 1) AS newest ON true) AS l;
    WITH pause_key AS MATERIALIZED (
        SELECT DISTINCT key FROM pause WHERE until > now()
    ),
    target AS MATERIALIZED (
        SELECT l.ctid AS tid,
            CASE WHEN setting.tenant_id IS NULL THEN 1000 ELSE tenant_stride(l.tenant_id) END AS stride,
            (tenant_cap.tenant_id IS NOT NULL OR group_cap.group_key IS NOT NULL)
                AND is_capped(l.kind, l.tenant_id, l.group_key) AS capped,
            CASE WHEN num_nonnulls(by_queue.key, by_kind.key, by_provider.key, by_tenant.key, by_group.key) > 0
                THEN paused_until(l.queue, l.kind, l.provider, l.tenant_id, l.group_key) END AS until
        FROM lane l
            LEFT JOIN tenant_setting AS setting ON setting.tenant_id = l.tenant_id
            LEFT JOIN (SELECT tenant_id FROM concurrency_cap GROUP BY tenant_id) AS tenant_cap
                ON tenant_cap.tenant_id = l.tenant_id
            LEFT JOIN (SELECT group_key FROM concurrency_cap WHERE group_key <> '' GROUP BY group_key) AS group_cap
                ON group_cap.group_key = l.group_key
            LEFT JOIN pause_key AS by_queue ON by_queue.key = l.queue
            LEFT JOIN pause_key AS by_kind ON by_kind.key = l.kind
            LEFT JOIN pause_key AS by_provider ON by_provider.key = l.provider
            LEFT JOIN pause_key AS by_tenant ON by_tenant.key = l.tenant_id
            LEFT JOIN pause_key AS by_group ON by_group.key = l.group_key
        WHERE l.ctid = ANY(page)
    ),
    stale_lane AS MATERIALIZED (
        SELECT l.ctid AS tid, target.stride, target.capped, target.until FROM target JOIN lane l ON l.ctid = target.tid
        WHERE l.stride <> target.stride OR l.capped <> target.capped
            OR target.until IS NOT NULL AND l.park_reason IS DISTINCT FROM 'pause'
        FOR UPDATE OF l SKIP LOCKED
    ),
    repaired_lane AS (
        UPDATE lane SET
            stride = w.stride, capped = w.capped,
            state = CASE WHEN w.until IS NULL THEN lane.state ELSE 'parked' END,
            park_reason = CASE WHEN w.until IS NULL THEN lane.park_reason ELSE 'pause' END,
            wake_at = CASE WHEN w.until IS NULL THEN lane.wake_at ELSE w.until END
        FROM stale_lane w WHERE lane.ctid = w.tid
        RETURNING w.until
    )
    SELECT count(until) INTO parked FROM repaired_lane;
    IF lane_count < most THEN
        last := NULL;
    END IF;
END $$;
