-- lane_raise_floors: raise the floors of lane_floor and lane_wake_floor to where work is now.
-- Takes   whole: look below the present floors as well
-- Returns nothing
-- Locks   the rows of floors that change; passes over locked ones
-- Needs   one value to compare a floor with: of two conditions, one of them `whole`, the index would use
--         neither. A floor follows once all transactions that wrote when it was noted have ended, or after 15
--         s; two seconds of parked lanes stay above theirs
CREATE FUNCTION lane_raise_floors(whole boolean) RETURNS void LANGUAGE sql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
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
        (seen, rising, written_by) = (
            SELECT CASE WHEN stays THEN seen ELSE rising END, CASE WHEN stays THEN rising ELSE pg_current_snapshot() END,
                pg_snapshot_xmin(CASE WHEN stays THEN seen ELSE rising END)
            FROM (  -- a dump may come from a server that has counted further
                SELECT CASE WHEN ahead THEN '1:1:' ELSE lane_wake_floor.seen END AS seen,
                    CASE WHEN ahead THEN '1:1:' ELSE lane_wake_floor.rising END AS rising,
                    NOT ahead AND lane_wake_left(lane_wake_floor.seen, lane_wake_floor.rising, whole) AS stays
                FROM (SELECT pg_snapshot_xmax(lane_wake_floor.rising) > pg_snapshot_xmax(pg_current_snapshot())) AS c (ahead)
            ) AS next)
$$;
