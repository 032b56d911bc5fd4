-- 0017_floors_of_empty_classes: floors rise where no lane is ready, too, and wait for who still writes (Q12, R17).
-- Phase   pre (the version before it calls the same functions)
-- Needs   0004_lane_upkeep

-- Work that comes one by one leaves its class empty again and again. No floor rose then, and under a pinned snapshot
-- whoever made a lane ready read past every lane that had been: 11,000 entries after five minutes.

-- Who was writing when `rising` was noted: the floor follows once all of them have ended. A statement that made a lane
-- ready may commit late (a stand-by that is waited for), and its lane must not lie below the floor. But for no longer
-- than 15 s: who has a transaction open for hours makes no lanes, and what else comes so late the sweep finds.
ALTER TABLE lane_floor ADD COLUMN noted_by xid8 NOT NULL DEFAULT '0';
ALTER TABLE lane_floor ADD COLUMN noted_at timestamptz NOT NULL DEFAULT '-infinity';

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
                AND lane.state = 'ready' AND (whole OR lane.vtime >= f.vtime)
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
            WHERE lane.state = 'parked' AND (whole OR lane.wake_at >= lane_wake_floor.wake_at)
            ORDER BY lane.wake_at LIMIT 1), 'infinity')),
        -- what an older transaction wrote is visible to this statement, or was undone
        written_by = coalesce((
            SELECT w.written_by FROM lane_wake w
            WHERE (whole OR w.written_by >= lane_wake_floor.written_by)
                AND w.written_by < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY w.written_by LIMIT 1), pg_snapshot_xmin(pg_current_snapshot()))
$$;

-- The last of a tenant's ready lanes in a class, as in 0002: none lies below every floor of the class.
CREATE OR REPLACE FUNCTION lane_last(of_queue text, of_level smallint, of_tenant text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT vtime FROM lane
    WHERE queue = of_queue AND level = of_level AND tenant_id = of_tenant AND state = 'ready'
        AND vtime >= (SELECT min(f.vtime) FROM lane_floor f WHERE f.queue = of_queue AND f.level = of_level)
    ORDER BY vtime DESC LIMIT 1
$$;
