-- 0020_sweep_in_pages: the net under the lanes is of small statements, whatever their number (R17, Q2).
-- Phase   pre (the version before it calls lane_sweep, which does the same in one)
-- Needs   0004_lane_upkeep

-- It was one statement, whose last step deleted what was old. Where there were so many lanes that it took longer than a
-- statement may, all of it was undone each time: nothing was mended any more, and lanes became ever more. And while it
-- lasted, what it had locked of lane_name held up pauses, and they whoever made a lane.

-- An available job's lane is ready, or parked with a wake time: it reads each lane that has work, whatever its row says.
CREATE FUNCTION lane_sweep_lost() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE lost uuid[]; due_ats timestamptz[]; opened integer;
BEGIN
    -- a kind that is gone leaves no floor behind; a lane that is there has one
    DELETE FROM lane_floor f WHERE NOT EXISTS (
        SELECT FROM lane l WHERE l.queue = f.queue AND l.kind = f.kind);
    INSERT INTO lane_floor (queue, level, kind)
    SELECT l.queue, level, l.kind FROM (SELECT DISTINCT queue, kind FROM lane) AS l, generate_series(0, 3) AS level
    ON CONFLICT DO NOTHING;

    PERFORM lane_raise_floors(true);
    WITH RECURSIVE heads AS (  -- the first job of each lane: a walk from lane to lane along job_lane_idx
        (SELECT lane_id, run_at, job_id FROM job WHERE state = 'available' AND crash_count = 0
         ORDER BY lane_id, run_at, job_id LIMIT 1)
        UNION ALL
        SELECT next.* FROM heads CROSS JOIN LATERAL (
            SELECT lane_id, run_at, job_id FROM job
            WHERE state = 'available' AND crash_count = 0 AND lane_id > heads.lane_id
            ORDER BY lane_id, run_at, job_id LIMIT 1) AS next
    )
    SELECT array_agg(heads.lane_id), array_agg(heads.run_at) INTO lost, due_ats
    FROM heads LEFT JOIN LATERAL (
        SELECT l.state, l.park_reason, l.wake_at, l.mark_at, l.mark_id FROM lane l
        WHERE l.lane_id = heads.lane_id ORDER BY l.vtime DESC LIMIT 1
    ) AS lane ON true
    WHERE lane.state IS NULL OR lane.state = 'idle'
        OR (heads.run_at, heads.job_id) < (lane.mark_at, lane.mark_id)
        OR lane.park_reason = 'due' AND lane.wake_at > heads.run_at;
    opened := coalesce(cardinality(lost), 0);
    IF lost IS NOT NULL THEN
        DELETE FROM lane_name WHERE lane_id = ANY(lost)  -- a name without its lane
            AND NOT EXISTS (SELECT FROM lane WHERE lane.lane_id = lane_name.lane_id);
        PERFORM lane_touch(lost, due_ats);
    END IF;
    RETURN opened;
END $$;

-- Copies of what is set, and pauses that nobody parked for, of the lanes behind this one; where to go on, NULL at the end.
CREATE FUNCTION lane_sweep_page(behind uuid, most integer, OUT last uuid, OUT parked integer) LANGUAGE plpgsql AS $$
DECLARE page tid[]; seen integer;
BEGIN
    SELECT array_agg(l.tid), (array_agg(l.lane_id ORDER BY l.lane_id))[count(*)], count(*) INTO page, last, seen FROM (
        SELECT lane.ctid AS tid, lane.lane_id FROM lane WHERE lane.lane_id > behind ORDER BY lane.lane_id LIMIT most) AS l;
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

-- Lanes that had no work for a day are forgotten, at most so many; how many were.
CREATE FUNCTION lane_forget(most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE forgotten integer;
BEGIN
    WITH old AS (
        DELETE FROM lane WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM lane WHERE state = 'idle' AND served_at < now() - interval '1 day'
            LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING lane_id
    ),
    names AS (DELETE FROM lane_name WHERE lane_id IN (SELECT lane_id FROM old))
    SELECT count(*) INTO forgotten FROM old;
    RETURN forgotten;
END $$;

-- For the version before.
CREATE OR REPLACE FUNCTION lane_sweep() RETURNS TABLE (opened integer, parked integer, deleted integer)
LANGUAGE sql VOLATILE AS $$
    SELECT lane_sweep_lost(), p.parked, lane_forget(1000)
    FROM lane_sweep_page('00000000-0000-0000-0000-000000000000', 2147483647) AS p
$$;
