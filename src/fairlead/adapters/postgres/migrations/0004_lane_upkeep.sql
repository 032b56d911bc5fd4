-- 0004_lane_upkeep: floors, ageing, the net under everything else, and work that waits for a grant (Q6, R17).
-- Phase   pre
-- Needs   0002_lanes

-- Raise the floors to where each class has got to. `whole`: look below them too. Two seconds of parked lanes stay
-- above theirs: a statement that parks one may take so long to commit.
CREATE FUNCTION lane_raise_floors(whole boolean) RETURNS void LANGUAGE sql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
    UPDATE lane_floor SET vtime = least(lane_floor.rising, found.vtime), rising = found.vtime
    FROM (
        SELECT f.ctid AS tid, least_ready.vtime FROM lane_floor f CROSS JOIN LATERAL (
            SELECT lane.vtime FROM lane
            WHERE lane.queue = f.queue AND lane.kind = f.kind AND lane.level = f.level
                AND lane.state = 'ready' AND (whole OR lane.vtime >= f.vtime)
            ORDER BY lane.vtime LIMIT 1
        ) AS least_ready
        WHERE least_ready.vtime <> f.vtime OR least_ready.vtime <> f.rising
        FOR UPDATE OF f SKIP LOCKED
    ) AS found
    WHERE lane_floor.ctid = found.tid;
    UPDATE lane_wake_floor SET
        wake_at = least(now() - interval '2 seconds', coalesce((
            SELECT lane.wake_at FROM lane
            WHERE lane.state = 'parked' AND (whole OR lane.wake_at >= lane_wake_floor.wake_at)
            ORDER BY lane.wake_at LIMIT 1), 'infinity')),
        -- what an older transaction wrote is visible to this statement, or was undone
        written_by = coalesce((
            SELECT w.written_by FROM lane_wake w
            WHERE (whole OR w.written_by >= lane_wake_floor.written_by)
                AND w.written_by < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY w.written_by LIMIT 1), pg_snapshot_xmin(pg_current_snapshot()))
$$;

-- Lanes that wait for their turn longer than a quarter of the longest wait, per class that they rise.
CREATE FUNCTION lane_age(longest_wait_s float8) RETURNS integer LANGUAGE sql VOLATILE AS $$
    WITH old AS MATERIALIZED (
        SELECT l.ctid AS tid, l.queue, l.kind, l.tenant_id, l.stride::bigint, l.vtime,
            greatest(0, l.priority - floor(extract(epoch FROM now() - l.served_at) / (longest_wait_s / 4)))::smallint
                AS level
        FROM lane_floor f JOIN lane l ON l.queue = f.queue AND l.kind = f.kind AND l.level = f.level
        WHERE f.level > 0 AND l.state = 'ready' AND l.vtime >= f.vtime
            AND l.served_at < now() - (l.priority - l.level + 1) * longest_wait_s / 4 * interval '1 second'
        FOR UPDATE OF l SKIP LOCKED
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

-- Make the invariant hold: an available job's lane is ready, or parked with a wake time. The net under everything
-- else: it reads each lane that has work, whatever the lane's row says.
CREATE FUNCTION lane_sweep() RETURNS TABLE (opened integer, parked integer, deleted integer) LANGUAGE plpgsql AS $$
DECLARE lost uuid[]; due_ats timestamptz[];
BEGIN
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

    -- a kind that is gone leaves no floor behind; a lane that is there has one
    DELETE FROM lane_floor f WHERE NOT EXISTS (
        SELECT FROM lane l WHERE l.queue = f.queue AND l.kind = f.kind);
    INSERT INTO lane_floor (queue, level, kind)
    SELECT l.queue, level, l.kind FROM (SELECT DISTINCT queue, kind FROM lane) AS l, generate_series(0, 3) AS level
    ON CONFLICT DO NOTHING;

    WITH should AS MATERIALIZED (
        SELECT l.ctid AS tid, stride_of(l.tenant_id) AS stride, is_capped(l.kind, l.tenant_id, l.group_key) AS capped,
            paused_until(l.queue, l.kind, l.provider, l.tenant_id, l.group_key) AS until
        FROM lane l
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

    WITH old AS (
        DELETE FROM lane WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM lane WHERE state = 'idle' AND served_at < now() - interval '1 day'
            LIMIT 1000 FOR UPDATE SKIP LOCKED))
        RETURNING lane_id
    ),
    names AS (DELETE FROM lane_name WHERE lane_id IN (SELECT lane_id FROM old))
    SELECT count(*) INTO deleted FROM old;
    RETURN NEXT;
END $$;

-- ---- connections that need a new grant ----------------------------------------------------------

-- Only the customer can help: the work of a connection waits, and costs a claim nothing (Q6). A pause without end stays
-- as somebody set it. Lanes are locked in the order of their ids, for which claims are waited for, some milliseconds;
-- one that is being made at this moment is found by the sweep.
CREATE FUNCTION await_grant(of_tenant text, of_provider text, of_bucket text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pause (scope, tenant_id, key, reason, paused_by)
    VALUES ('group', of_tenant, of_provider || '/' || of_bucket, 'needs_reauth', 'fairlead')
    ON CONFLICT (scope, tenant_id, key) DO UPDATE SET
        until = excluded.until, reason = excluded.reason, paused_by = excluded.paused_by, since = excluded.since
        WHERE pause.until < 'infinity';
    PERFORM FROM lane_name n JOIN lane l ON l.lane_id = n.lane_id
    WHERE n.tenant_id = of_tenant AND n.group_key = of_provider || '/' || of_bucket
    ORDER BY l.lane_id FOR UPDATE OF l;
    UPDATE lane SET state = 'parked', park_reason = 'pause', wake_at = 'infinity'
    FROM lane_name n
    WHERE n.tenant_id = of_tenant AND n.group_key = of_provider || '/' || of_bucket AND lane.lane_id = n.lane_id
        AND NOT is_own(lane.kind);
END $$;

-- It has one, or is no more: what waited is looked at again, and goes on as far as nobody else holds it back.
CREATE FUNCTION grant_given(of_tenant text, of_provider text, of_bucket text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM pause
    WHERE scope = 'group' AND tenant_id = of_tenant AND key = of_provider || '/' || of_bucket
        AND reason = 'needs_reauth' AND paused_by = 'fairlead';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM lane_name n JOIN lane l ON l.lane_id = n.lane_id
    WHERE n.tenant_id = of_tenant AND n.group_key = of_provider || '/' || of_bucket
    ORDER BY l.lane_id FOR UPDATE OF l;
    UPDATE lane SET wake_at = clock_timestamp()
    FROM lane_name n
    WHERE n.tenant_id = of_tenant AND n.group_key = of_provider || '/' || of_bucket AND lane.lane_id = n.lane_id
        AND lane.park_reason = 'pause';
END $$;

-- ---- from now on ------------------------------------------------------------------------------

-- What was enqueued before there were lanes.
SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM (
    SELECT lane_id, min(run_at) AS run_at FROM job WHERE state = 'available' AND crash_count = 0 GROUP BY lane_id
) AS waiting HAVING count(*) > 0;
