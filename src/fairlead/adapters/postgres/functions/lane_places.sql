-- lane_places: how many jobs each lane of a claim may start under its caps.
-- Takes   tenants, groups, takes: the names of each lane, and how many jobs it would give
-- Returns the places per lane: NULL without a cap, 0 if it is full, -1 if another claim counts or earlier lanes
--         took all
-- Locks   the rows of the caps until the end of the transaction; passes over locked ones
-- Needs   READ COMMITTED. Only lanes that give jobs use places, so a light lane that gives none does not block
--         the others. The stored moment is five seconds older than needed, because a claim that began a little
--         earlier uses it too
CREATE FUNCTION lane_places(tenants text[], groups text[], takes integer[]) RETURNS integer[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE locked tid[]; rooms integer[]; risen tid[]; risen_to timestamptz[];
BEGIN
    SELECT array_agg(c.tid) INTO locked FROM (
        SELECT concurrency_cap.ctid AS tid FROM concurrency_cap
        WHERE tenant_id = ANY(''::text || tenants) AND group_key = ANY(''::text || groups)
        ORDER BY tenant_id, group_key FOR UPDATE SKIP LOCKED) AS c;
    WITH cap AS MATERIALIZED (
        SELECT c.ctid AS tid, c.tenant_id, c.group_key, c.counted_from, c.known_by, ran.oldest,
            CASE WHEN ran.jobs IS NOT NULL THEN greatest(0, c.max_running - ran.jobs) END AS places
        FROM concurrency_cap c CROSS JOIN LATERAL cap_running(  -- of nothing where somebody else counts
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
        UPDATE concurrency_cap SET counted_from = f.at FROM unnest(risen, risen_to) AS f (tid, at)
        WHERE concurrency_cap.ctid = f.tid;
    END IF;
    RETURN rooms;
END $$;
