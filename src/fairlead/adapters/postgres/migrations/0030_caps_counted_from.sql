-- 0030_caps_counted_from: what runs under a cap is counted from the oldest that runs, not from all that ran (Q7, Q12).
-- Phase   pre (the version before it calls the same functions)
-- Needs   0018_turns_under_caps, 0019_suspects_one_by_one, 0028_running_since, 0029_running_group_since

-- What has run leaves an entry among those of what runs for as long as a snapshot is held, and each claim under a cap
-- read all of them: 54,000 after 15 minutes at 60 jobs a second, in 60 ms. Each cap remembers now since when whatever
-- runs under it was begun. Suspects that have not begun count as if they began later than all (started_at IS NULL).
DROP INDEX job_running_idx, job_running_group_idx;
ALTER TABLE running_cap ADD COLUMN counted_from timestamptz NOT NULL DEFAULT '-infinity';

-- How many jobs run under a cap, of those that began since then, and when the oldest of them began; NULL of NULL.
CREATE FUNCTION cap_running(
    of_tenant text, of_group text, since timestamptz, OUT jobs bigint, OUT oldest timestamptz)
LANGUAGE plpgsql STABLE STRICT SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    IF of_tenant = '' THEN
        SELECT count(*), min(j.started_at) INTO jobs, oldest FROM job j
        WHERE j.group_key = of_group AND j.group_key <> '' AND j.state = 'running'
            AND coalesce(j.started_at, 'infinity') >= since AND NOT is_own(j.kind);
    ELSE
        SELECT count(*), min(j.started_at) INTO jobs, oldest FROM job j
        WHERE j.tenant_id = of_tenant AND j.state = 'running'
            AND coalesce(j.started_at, 'infinity') >= since AND NOT is_own(j.kind)
            AND (of_group = '' OR j.group_key = of_group);
    END IF;
END $$;

-- From when a cap is counted. Whoever claims under it holds its row, so nothing that he claims began before that; not even
-- if the clock is set back, as then all are counted, and the moment is found anew. Who claimed without it, since it was
-- being set just then, is there to be seen after 15 s: our statements end within 12.
CREATE FUNCTION cap_since(counted_from timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN counted_from <= now() - interval '15 seconds' THEN counted_from ELSE '-infinity' END
$$;

-- As in 0016.
CREATE OR REPLACE FUNCTION lane_places(tenants text[], groups text[], takes integer[]) RETURNS integer[]
LANGUAGE plpgsql AS $$
DECLARE locked tid[]; rooms integer[]; risen tid[]; risen_to timestamptz[];
BEGIN
    SELECT array_agg(c.tid) INTO locked FROM (
        SELECT running_cap.ctid AS tid FROM running_cap
        WHERE tenant_id = ANY(''::text || tenants) AND group_key = ANY(''::text || groups)
        ORDER BY tenant_id, group_key FOR UPDATE SKIP LOCKED) AS c;
    WITH cap AS MATERIALIZED (
        SELECT c.ctid AS tid, c.tenant_id, c.group_key, c.counted_from, ran.oldest,
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
        SELECT cap.tid, least(cap.oldest, now() - interval '15 seconds') AS at FROM cap
        WHERE cap.places IS NOT NULL AND (cap.counted_from > now() - interval '15 seconds'
            OR least(cap.oldest, now() - interval '15 seconds') > cap.counted_from + interval '10 seconds')
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

-- As in 0016.
CREATE OR REPLACE FUNCTION is_full(of_tenant text, of_group text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM running_cap c CROSS JOIN LATERAL cap_running(c.tenant_id, c.group_key, cap_since(c.counted_from)) AS ran
        WHERE (c.tenant_id, c.group_key) IN (VALUES (of_tenant, ''), ('', of_group), (of_tenant, of_group))
            AND c.max_running <= ran.jobs)
$$;
