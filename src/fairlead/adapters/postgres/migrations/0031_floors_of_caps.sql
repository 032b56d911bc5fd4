-- 0031_floors_of_caps: whoever began late, or beside a cap that was being set, is counted, too (Q7, R17).
-- Phase   pre (the version before it calls the same functions)
-- Needs   0027_lanes_moved_from_above, 0030_caps_counted_from

-- Its rows are written anew each ten seconds now.
ALTER TABLE running_cap SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);

-- A transaction that began after a cap was set and its lanes were in step: whoever did not see the cap, and so held no row
-- of it, has an older one. Until those have ended, however long their commits take, all are counted.
ALTER TABLE running_cap ADD COLUMN known_by xid8;
UPDATE running_cap SET known_by = pg_current_xact_id(), counted_from = '-infinity';
CREATE INDEX running_cap_new_idx ON running_cap (tenant_id) WHERE known_by IS NULL;

-- As in 0030. A suspect that has not begun holds the moment where it is: it begins in a transaction of its own, which may
-- stand still on its way for longer than 15 s, and would then have begun before a moment that had passed it.
CREATE OR REPLACE FUNCTION cap_running(
    of_tenant text, of_group text, since timestamptz, OUT jobs bigint, OUT oldest timestamptz)
LANGUAGE plpgsql STABLE STRICT SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    IF of_tenant = '' THEN
        SELECT count(*), min(coalesce(j.started_at, '-infinity')) INTO jobs, oldest FROM job j
        WHERE j.group_key = of_group AND j.group_key <> '' AND j.state = 'running'
            AND coalesce(j.started_at, 'infinity') >= since AND NOT is_own(j.kind);
    ELSE
        SELECT count(*), min(coalesce(j.started_at, '-infinity')) INTO jobs, oldest FROM job j
        WHERE j.tenant_id = of_tenant AND j.state = 'running'
            AND coalesce(j.started_at, 'infinity') >= since AND NOT is_own(j.kind)
            AND (of_group = '' OR j.group_key = of_group);
    END IF;
END $$;

-- As in 0030. The moment that is noted is five seconds older than it must be: whoever claims at the same time, and began
-- a little earlier, believes it too. Else he counts all that ever ran.
CREATE OR REPLACE FUNCTION lane_places(tenants text[], groups text[], takes integer[]) RETURNS integer[]
LANGUAGE plpgsql AS $$
DECLARE locked tid[]; rooms integer[]; risen tid[]; risen_to timestamptz[];
BEGIN
    SELECT array_agg(c.tid) INTO locked FROM (
        SELECT running_cap.ctid AS tid FROM running_cap
        WHERE tenant_id = ANY(''::text || tenants) AND group_key = ANY(''::text || groups)
        ORDER BY tenant_id, group_key FOR UPDATE SKIP LOCKED) AS c;
    WITH cap AS MATERIALIZED (
        SELECT c.ctid AS tid, c.tenant_id, c.group_key, c.counted_from, c.known_by, ran.oldest,
            CASE WHEN ran.jobs IS NOT NULL THEN greatest(0, c.max_running - ran.jobs) END AS places
        FROM running_cap c CROSS JOIN LATERAL cap_running(  -- of nothing where somebody else counts
            c.tenant_id, c.group_key, CASE WHEN c.ctid = ANY(locked) THEN cap_since(c.counted_from) END) AS ran
        WHERE c.tenant_id = ANY(''::text || tenants) AND c.group_key = ANY(''::text || groups)
    ),
    left_over AS (  -- of each cap that holds for a lane, after the lanes before it had theirs
        SELECT h.o, cap.places, cap.places - coalesce(sum(least(cap.places, h.take, 3)) OVER before, 0) AS places_left,
            coalesce(max(h.take) OVER behind, 0) = 0 AS last
        FROM unnest(tenants, groups, takes) WITH ORDINALITY AS h (tenant_id, group_key, take, o) JOIN cap
            ON (cap.tenant_id = h.tenant_id AND cap.group_key IN ('', h.group_key))
            OR (cap.tenant_id = '' AND cap.group_key = h.group_key)
        WINDOW before AS (PARTITION BY cap.tenant_id, cap.group_key ORDER BY h.o
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            behind AS (PARTITION BY cap.tenant_id, cap.group_key ORDER BY h.o
                       ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
    ),
    judged AS (
        SELECT o, CASE WHEN bool_or(places IS NULL) THEN -1
                       WHEN min(places) = 0 THEN 0
                       WHEN min(places_left) <= 0 THEN -1
                       ELSE min(CASE WHEN last THEN places_left ELSE least(places_left, 3) END) END AS room
        FROM left_over GROUP BY o
    ),
    floor AS (
        SELECT cap.tid, least(cap.oldest, now() - interval '20 seconds') AS at FROM cap
        WHERE cap.places IS NOT NULL
            AND (cap.known_by <= pg_snapshot_xmin(pg_current_snapshot())
                OR cap.known_by >= pg_snapshot_xmax(pg_current_snapshot()))  -- of the server that this was restored from
            AND (cap.counted_from > now() - interval '15 seconds'
                OR least(cap.oldest, now() - interval '20 seconds') > cap.counted_from + interval '10 seconds')
    )
    SELECT (SELECT array_agg(judged.room ORDER BY h.o)
            FROM generate_subscripts(tenants, 1) AS h (o) LEFT JOIN judged USING (o)),
        (SELECT array_agg(floor.tid) FROM floor), (SELECT array_agg(floor.at) FROM floor)
    INTO rooms, risen, risen_to;
    IF risen IS NOT NULL THEN
        UPDATE running_cap SET counted_from = f.at FROM unnest(risen, risen_to) AS f (tid, at)
        WHERE running_cap.ctid = f.tid;
    END IF;
    RETURN rooms;
END $$;

-- As in 0027. From here on nobody claims these lanes without their caps: caps of lanes that were not capped are new to them,
-- whoever else has marked them meanwhile, or noted a moment.
CREATE OR REPLACE FUNCTION lane_apply(lane_ids uuid[]) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
    UPDATE running_cap SET known_by = pg_current_xact_id() WHERE known_by IS NULL;
    PERFORM FROM running_cap
    WHERE tenant_id = ANY(''::text || tenants) AND group_key = ANY(''::text || groups)
    ORDER BY tenant_id, group_key FOR UPDATE;
    UPDATE running_cap SET known_by = pg_current_xact_id(), counted_from = '-infinity'
    WHERE tenant_id = ANY(''::text || tenants) AND group_key = ANY(''::text || groups);
END $$;
