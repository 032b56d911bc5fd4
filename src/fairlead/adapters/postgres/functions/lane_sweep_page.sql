-- lane_sweep_page: repair copies of weights and caps, and pauses for which a lane was not parked, in one page
-- of lanes.
-- Takes   behind: the lane after which it begins, most: the length of the page
-- Returns last: where to go on (NULL at the end), parked: the number of lanes that it parked
-- Locks   the lanes that are wrong; passes over locked ones
-- Needs   nothing. Joins find the few lanes with a weight, a cap or a pause, and only for those it calls the
--         functions: three functions for each lane were nine tenths of the cost
CREATE FUNCTION lane_sweep_page(behind uuid, most integer, OUT last uuid, OUT parked integer) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_bitmapscan = off
AS $$
DECLARE page tid[]; seen integer;
BEGIN
    SELECT array_agg(l.tid), (array_agg(l.lane_id ORDER BY l.lane_id))[count(*)], count(*) INTO page, last, seen FROM (
        SELECT named.lane_id, newest.tid
        FROM (SELECT n.lane_id FROM lane_name n WHERE n.lane_id > behind ORDER BY n.lane_id LIMIT most) AS named
            LEFT JOIN LATERAL (
                SELECT lane.ctid AS tid FROM lane WHERE lane.lane_id = named.lane_id
                ORDER BY lane.vtime DESC LIMIT 1) AS newest ON true) AS l;
    WITH held AS MATERIALIZED (
        SELECT DISTINCT key FROM pause WHERE until > now()
    ),
    should AS MATERIALIZED (
        SELECT l.ctid AS tid,
            CASE WHEN share.tenant_id IS NULL THEN 1000 ELSE stride_of(l.tenant_id) END AS stride,
            (tenant_cap.tenant_id IS NOT NULL OR group_cap.group_key IS NOT NULL)
                AND is_capped(l.kind, l.tenant_id, l.group_key) AS capped,
            CASE WHEN num_nonnulls(by_queue.key, by_kind.key, by_provider.key, by_tenant.key, by_group.key) > 0
                THEN paused_until(l.queue, l.kind, l.provider, l.tenant_id, l.group_key) END AS until
        FROM lane l
            LEFT JOIN tenant_setting AS share ON share.tenant_id = l.tenant_id
            LEFT JOIN (SELECT tenant_id FROM concurrency_cap GROUP BY tenant_id) AS tenant_cap
                ON tenant_cap.tenant_id = l.tenant_id
            LEFT JOIN (SELECT group_key FROM concurrency_cap WHERE group_key <> '' GROUP BY group_key) AS group_cap
                ON group_cap.group_key = l.group_key
            LEFT JOIN held AS by_queue ON by_queue.key = l.queue
            LEFT JOIN held AS by_kind ON by_kind.key = l.kind
            LEFT JOIN held AS by_provider ON by_provider.key = l.provider
            LEFT JOIN held AS by_tenant ON by_tenant.key = l.tenant_id
            LEFT JOIN held AS by_group ON by_group.key = l.group_key
        WHERE l.ctid = ANY(page)
    ),
    wrong AS MATERIALIZED (
        SELECT l.ctid AS tid, should.stride, should.capped, should.until FROM should JOIN lane l ON l.ctid = should.tid
        WHERE l.stride <> should.stride OR l.capped <> should.capped
            OR should.until IS NOT NULL AND l.park_reason IS DISTINCT FROM 'pause'
        FOR UPDATE OF l SKIP LOCKED
    ),
    mended AS (
        UPDATE lane SET
            stride = w.stride, capped = w.capped,
            state = CASE WHEN w.until IS NULL THEN lane.state ELSE 'parked' END,
            park_reason = CASE WHEN w.until IS NULL THEN lane.park_reason ELSE 'pause' END,
            wake_at = CASE WHEN w.until IS NULL THEN lane.wake_at ELSE w.until END
        FROM wrong w WHERE lane.ctid = w.tid
        RETURNING w.until
    )
    SELECT count(until) INTO parked FROM mended;
    IF seen < most THEN
        last := NULL;
    END IF;
END $$;
