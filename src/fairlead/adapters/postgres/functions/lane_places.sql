-- lane_places: compute how many jobs each lane of a claim may start under its caps.
-- Takes   tenants, groups: the names of each lane (NULL: no cap applies); job_counts: the jobs that each would
--         give
-- Returns for each lane its places: NULL without a cap, 0 if a cap is full, -1 if another claim counts it or
--         the lanes before it use all places
-- Locks   the rows of the caps until the end of the transaction; passes over locked ones
-- Needs   READ COMMITTED. Only lanes that give jobs use places, so a light lane that gives none does not block
--         the others. The stored time is five seconds earlier than it could be, because a claim that began a
--         little earlier uses it too
CREATE FUNCTION lane_places(tenants text[], groups text[], job_counts integer[]) RETURNS integer[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE cap_tids tid[]; places_by_lane integer[]; raised_tids tid[]; raised_times timestamptz[];
BEGIN
    SELECT array_agg(c.tid) INTO cap_tids FROM (
        SELECT concurrency_cap.ctid AS tid FROM concurrency_cap
        WHERE tenant_id = ANY(''::text || tenants) AND group_key = ANY(''::text || groups)
        ORDER BY tenant_id, group_key FOR UPDATE SKIP LOCKED) AS c;
    WITH cap AS MATERIALIZED (
        SELECT c.ctid AS tid, c.tenant_id, c.group_key, c.counted_from, c.known_by, usage.oldest,
            CASE WHEN usage.jobs IS NOT NULL THEN greatest(0, c.max_running - usage.jobs) END AS places
        FROM concurrency_cap c CROSS JOIN LATERAL cap_running(  -- NULL where another claim counts
            c.tenant_id, c.group_key, CASE WHEN c.ctid = ANY(cap_tids) THEN cap_count_from(c.counted_from) END) AS usage
        WHERE c.tenant_id = ANY(''::text || tenants) AND c.group_key = ANY(''::text || groups)
    ),
    remainder AS (  -- of each cap of a lane, what the lanes before it leave
        SELECT lane_input.ord, cap.places, cap.places -
                coalesce(sum(least(cap.places, lane_input.job_count, 3)) OVER earlier_lanes, 0) AS places_left,
            coalesce(max(lane_input.job_count) OVER later_lanes, 0) = 0 AS is_last
        FROM unnest(tenants, groups, job_counts) WITH ORDINALITY
                AS lane_input (tenant_id, group_key, job_count, ord)
            JOIN cap
            ON (cap.tenant_id = lane_input.tenant_id AND cap.group_key IN ('', lane_input.group_key))
            OR (cap.tenant_id = '' AND cap.group_key = lane_input.group_key)
        WINDOW earlier_lanes AS (PARTITION BY cap.tenant_id, cap.group_key ORDER BY lane_input.ord
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            later_lanes AS (PARTITION BY cap.tenant_id, cap.group_key ORDER BY lane_input.ord
                       ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
    ),
    decision AS (
        SELECT ord, CASE WHEN bool_or(places IS NULL) THEN -1
                       WHEN min(places) = 0 THEN 0
                       WHEN min(places_left) <= 0 THEN -1
                       ELSE min(CASE WHEN is_last THEN places_left ELSE least(places_left, 3) END) END AS place_count
        FROM remainder GROUP BY ord
    ),
    new_start AS (
        SELECT cap.tid, least(cap.oldest, now() - interval '20 seconds') AS count_from FROM cap
        WHERE cap.places IS NOT NULL
            AND (cap.known_by <= pg_snapshot_xmin(pg_current_snapshot())
                -- an id of the server that this database was restored from
                OR cap.known_by >= pg_snapshot_xmax(pg_current_snapshot()))
            AND (cap.counted_from > now() - interval '15 seconds'
                OR least(cap.oldest, now() - interval '20 seconds') > cap.counted_from + interval '10 seconds')
    )
    SELECT (SELECT array_agg(decision.place_count ORDER BY lane_input.ord)
            FROM generate_subscripts(tenants, 1) AS lane_input (ord) LEFT JOIN decision USING (ord)),
        (SELECT array_agg(new_start.tid) FROM new_start), (SELECT array_agg(new_start.count_from) FROM new_start)
    INTO places_by_lane, raised_tids, raised_times;
    IF raised_tids IS NOT NULL THEN
        UPDATE concurrency_cap SET counted_from = new_count.count_from
        FROM unnest(raised_tids, raised_times) AS new_count (tid, count_from)
        WHERE concurrency_cap.ctid = new_count.tid;
    END IF;
    RETURN places_by_lane;
END $$;
