-- 0026_what_lanes_were: is read neither for waits under a cap, nor by the sweep, nor by the upkeep (Q7, Q12).
-- Phase   pre (the version before it calls the same functions)
-- Needs   0017_floors_of_empty_classes, 0018_turns_under_caps, 0020_sweep_in_pages, 0025_lanes_found_from_above

-- ---- waits under a cap -------------------------------------------------------------------------

-- A lane under a full cap is parked for a second, again and again, and where a snapshot is held each time leaves an
-- entry in these indexes. Its wait goes on, so that the old ones stood before that of today, or beside it: each job that
-- ended under a cap read three times what had ever been parked for it. Now they are told apart by the five seconds in
-- which they were to be woken.
CREATE FUNCTION lane_cap_span(wake_at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT date_bin('5 seconds', wake_at, '2000-01-01 00:00:00+00')
$$;

DROP INDEX lane_cap_idx, lane_group_cap_idx, lane_cap_wait_idx, lane_group_cap_wait_idx;
CREATE INDEX lane_cap_idx ON lane (tenant_id, lane_cap_span(wake_at), level, vtime) WHERE park_reason = 'cap';
CREATE INDEX lane_group_cap_idx ON lane (group_key, lane_cap_span(wake_at), level, vtime)
    WHERE park_reason = 'cap' AND group_key <> '';
CREATE INDEX lane_cap_wait_idx ON lane (tenant_id, lane_cap_span(wake_at), served_at) WHERE park_reason = 'cap';
CREATE INDEX lane_group_cap_wait_idx ON lane (group_key, lane_cap_span(wake_at), served_at)
    WHERE park_reason = 'cap' AND group_key <> '';

-- The first span in which a lane that is parked now was to be woken: where the wakers have got to, but 15 s ago at the
-- latest, since who parked it may commit late (0017).
CREATE FUNCTION lane_cap_first() RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT lane_cap_span(greatest(now() - interval '5 minutes', least(
        now() - interval '15 seconds', (SELECT f.wake_at FROM lane_wake_floor f))))
$$;

-- All of them; a little ahead, too, as this statement may have waited.
CREATE FUNCTION lane_cap_spans() RETURNS SETOF timestamptz LANGUAGE sql STABLE ROWS 5 AS $$
    SELECT span FROM generate_series(
        (SELECT lane_cap_first()), lane_cap_span(now() + interval '5 seconds'), interval '5 seconds') AS span
$$;

-- Places have become free: lanes parked for the cap of these tenants or groups are ready again, the first `most` and the
-- two that wait longest, each behind the one before it.
CREATE OR REPLACE FUNCTION lane_uncap(tenants text[], groups text[], most integer) RETURNS void LANGUAGE sql VOLATILE
SET enable_seqscan = off AS $$
    UPDATE lane SET
        state = 'ready', park_reason = NULL, wake_at = NULL, level = waiting.level,
        vtime = greatest(CASE WHEN lane.level = waiting.level THEN lane.vtime END,  -- other classes have their own
                         waiting.start, waiting.last + lane.stride) + lane.stride::bigint * waiting.before
    FROM (
        SELECT held.tid, held.level, lane_start(held.queue, held.level, held.kind) AS start,
            lane_last(held.queue, held.level, held.tenant_id) AS last,
            row_number() OVER (PARTITION BY held.queue, held.level, held.tenant_id ORDER BY held.served_at) - 1 AS before
        FROM (
            SELECT l.ctid AS tid, l.queue, least(l.level, lane_risen(l.priority, l.served_at)) AS level, l.kind,
                l.tenant_id, l.served_at
            FROM lane l
            -- not by one of these indexes: it would be read from end to end
            WHERE coalesce(l.park_reason, '') = 'cap' AND l.ctid = ANY(ARRAY(
                SELECT near.tid FROM (SELECT DISTINCT unnest(tenants)) AS freed (tenant_id) CROSS JOIN LATERAL (
                    SELECT FROM lane c WHERE c.park_reason = 'cap' AND c.tenant_id = freed.tenant_id
                        AND lane_cap_span(c.wake_at) >= (SELECT lane_cap_first())
                    LIMIT 1) AS anybody CROSS JOIN LATERAL (
                    (SELECT first.tid FROM lane_cap_spans() AS span (at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.served_at FROM lane c
                        WHERE c.park_reason = 'cap' AND c.tenant_id = freed.tenant_id
                            AND lane_cap_span(c.wake_at) = span.at
                        ORDER BY c.served_at LIMIT 2) AS first
                     ORDER BY first.served_at LIMIT 2)
                    UNION
                    (SELECT first.tid FROM lane_cap_spans() AS span (at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.level, c.vtime FROM lane c
                        WHERE c.park_reason = 'cap' AND c.tenant_id = freed.tenant_id
                            AND lane_cap_span(c.wake_at) = span.at
                        ORDER BY c.level, c.vtime LIMIT least(most, 500)) AS first
                     ORDER BY first.level, first.vtime LIMIT least(most, 500))) AS near
                UNION
                SELECT near.tid FROM (SELECT DISTINCT unnest(groups)) AS freed (group_key) CROSS JOIN LATERAL (
                    SELECT FROM lane c
                    WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = freed.group_key
                        AND lane_cap_span(c.wake_at) >= (SELECT lane_cap_first())
                    LIMIT 1) AS anybody CROSS JOIN LATERAL (
                    (SELECT first.tid FROM lane_cap_spans() AS span (at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.served_at FROM lane c
                        WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = freed.group_key
                            AND lane_cap_span(c.wake_at) = span.at
                        ORDER BY c.served_at LIMIT 2) AS first
                     ORDER BY first.served_at LIMIT 2)
                    UNION
                    (SELECT first.tid FROM lane_cap_spans() AS span (at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.level, c.vtime FROM lane c
                        WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = freed.group_key
                            AND lane_cap_span(c.wake_at) = span.at
                        ORDER BY c.level, c.vtime LIMIT least(most, 500)) AS first
                     ORDER BY first.level, first.vtime LIMIT least(most, 500))) AS near))
            ORDER BY least(l.level, lane_risen(l.priority, l.served_at)), l.served_at
            LIMIT least(most, 500) + 2 FOR UPDATE SKIP LOCKED
        ) AS held
    ) AS waiting
    WHERE lane.ctid = waiting.tid
$$;

-- ---- the sweep ---------------------------------------------------------------------------------

-- It finds the rows of its lanes as 0025 has it; and a page is of names, which stay as they are.
ALTER FUNCTION lane_sweep_lost() SET enable_bitmapscan = off;

-- Copies of what is set, and pauses that nobody parked for, of the lanes behind this one; where to go on, NULL at the end.
CREATE OR REPLACE FUNCTION lane_sweep_page(behind uuid, most integer, OUT last uuid, OUT parked integer) LANGUAGE plpgsql
SET enable_bitmapscan = off AS $$
DECLARE page tid[]; seen integer;
BEGIN
    SELECT array_agg(l.tid), (array_agg(l.lane_id ORDER BY l.lane_id))[count(*)], count(*) INTO page, last, seen FROM (
        SELECT named.lane_id, newest.tid
        FROM (SELECT n.lane_id FROM lane_name n WHERE n.lane_id > behind ORDER BY n.lane_id LIMIT most) AS named
            LEFT JOIN LATERAL (
                SELECT lane.ctid AS tid FROM lane WHERE lane.lane_id = named.lane_id
                ORDER BY lane.vtime DESC LIMIT 1) AS newest ON true) AS l;
    WITH should AS MATERIALIZED (
        SELECT l.ctid AS tid, stride_of(l.tenant_id) AS stride, is_capped(l.kind, l.tenant_id, l.group_key) AS capped,
            paused_until(l.queue, l.kind, l.provider, l.tenant_id, l.group_key) AS until
        FROM lane l WHERE l.ctid = ANY(page)
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

-- ---- the upkeep of each second -----------------------------------------------------------------

-- As in 0017, but what a floor is compared with is one value: of two conditions, one of them `whole`, an index knows
-- nothing, and each look read its class from the first row that it ever had.
CREATE OR REPLACE FUNCTION lane_raise_floors(whole boolean) RETURNS void LANGUAGE sql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
    WITH firsts AS MATERIALIZED (
        SELECT f.ctid AS tid, f.queue, f.level, least_ready.vtime AS own,
            -- where a lane would join, as lane_start has it; the clock never goes back
            coalesce(least_ready.vtime, min(least_ready.vtime) OVER (PARTITION BY f.queue, f.level),
                     (SELECT last_value FROM lane_clock)) AS vtime
        FROM lane_floor f LEFT JOIN LATERAL (
            SELECT lane.vtime FROM lane
            WHERE lane.queue = f.queue AND lane.kind = f.kind AND lane.level = f.level
                AND lane.state = 'ready' AND lane.vtime >= CASE WHEN whole THEN 0 ELSE f.vtime END
            ORDER BY lane.vtime LIMIT 1
        ) AS least_ready ON true
    )
    UPDATE lane_floor SET
        vtime = CASE WHEN found.own IS NULL THEN greatest(lane_floor.vtime, least(lane_floor.rising, found.vtime))
                     ELSE least(lane_floor.rising, found.vtime) END,
        rising = found.vtime, noted_by = pg_current_xact_id(), noted_at = now()
    FROM (
        SELECT f.ctid AS tid, firsts.own, firsts.vtime FROM firsts JOIN lane_floor f ON f.ctid = firsts.tid
        WHERE CASE  -- the clock is of all classes: those where nothing is ready follow it now and then
                WHEN firsts.own IS NULL THEN firsts.vtime > f.vtime AND f.noted_at < now() - interval '5 seconds'
                ELSE firsts.vtime <> f.vtime OR firsts.vtime <> f.rising END
            AND (firsts.own < f.vtime OR f.noted_by <= pg_snapshot_xmin(pg_current_snapshot())
                 OR f.noted_at < now() - interval '15 seconds')
        FOR UPDATE OF f SKIP LOCKED
    ) AS found
    WHERE lane_floor.ctid = found.tid;
    UPDATE lane_wake_floor SET
        wake_at = least(now() - interval '2 seconds', coalesce((
            SELECT lane.wake_at FROM lane
            WHERE lane.state = 'parked'
                AND lane.wake_at >= CASE WHEN whole THEN '-infinity' ELSE lane_wake_floor.wake_at END
            ORDER BY lane.wake_at LIMIT 1), 'infinity')),
        -- what an older transaction wrote is visible to this statement, or was undone
        written_by = coalesce((
            SELECT w.written_by FROM lane_wake w
            WHERE w.written_by >= CASE WHEN whole THEN '0' ELSE lane_wake_floor.written_by END
                AND w.written_by < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY w.written_by LIMIT 1), pg_snapshot_xmin(pg_current_snapshot()))
$$;

-- Ready lanes that waited too long for their turn move into a more urgent class, as in 0004.
CREATE OR REPLACE FUNCTION lane_age(longest_wait_s float8) RETURNS integer LANGUAGE sql VOLATILE AS $$
    WITH old AS MATERIALIZED (
        SELECT l.ctid AS tid, l.queue, l.kind, l.tenant_id, l.stride::bigint, l.vtime,
            greatest(0, l.priority - floor(extract(epoch FROM now() - l.served_at) / (longest_wait_s / 4)))::smallint
                AS level
        FROM lane_floor f CROSS JOIN LATERAL (  -- class by class: as a join it may be of all classes, from end to end
            SELECT lane.*, lane.ctid FROM lane
            WHERE lane.queue = f.queue AND lane.kind = f.kind AND lane.level = f.level AND lane.state = 'ready'
                AND lane.vtime >= f.vtime
                AND lane.served_at < now() - (lane.priority - lane.level + 1) * longest_wait_s / 4 * interval '1 second'
            FOR UPDATE SKIP LOCKED) AS l
        WHERE f.level > 0
    ),
    class AS MATERIALIZED (
        SELECT queue, level, kind, lane_start(queue, level, kind) AS start FROM old GROUP BY queue, level, kind
    ),
    aged AS (
        UPDATE lane SET level = lined.level, vtime = lined.vtime
        FROM (  -- those of a tenant one behind the other
            SELECT old.tid, old.level, greatest(class.start, lane_last(old.queue, old.level, old.tenant_id) + old.stride)
                + old.stride * (row_number() OVER (PARTITION BY old.queue, old.level, old.tenant_id ORDER BY old.vtime) - 1)
                AS vtime
            FROM old JOIN class USING (queue, level, kind)
        ) AS lined
        WHERE lane.ctid = lined.tid RETURNING 1
    )
    SELECT count(*)::integer FROM aged
$$;
