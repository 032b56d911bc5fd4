-- lane_raise_floors: raise the floors of lane_floor and lane_wake_floor to where the ready and the parked lanes
-- are.
-- Takes   whole: read below the present floors as well
-- Returns nothing
-- Locks   the rows of floors that change; passes over locked ones
-- Needs   nothing. A floor is raised to a noted value once all transactions that wrote at that time have ended,
--         or after 15 s. The floor of parked lanes stays two seconds behind. Each floor is compared with one
--         value: with two conditions, one of them `whole`, PostgreSQL would use no index
CREATE FUNCTION lane_raise_floors(whole boolean) RETURNS void LANGUAGE sql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    WITH lowest AS MATERIALIZED (
        SELECT f.ctid AS tid, f.queue, f.level, least_ready.vtime AS kind_vtime,
            -- where a lane would join, as in lane_join_vtime; the clock never goes back
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
        vtime = CASE WHEN due_floor.kind_vtime IS NULL
            THEN greatest(lane_floor.vtime, least(lane_floor.rising, due_floor.vtime))
                     ELSE least(lane_floor.rising, due_floor.vtime) END,
        rising = due_floor.vtime, noted_by = pg_current_xact_id(), noted_at = now()
    FROM (
        SELECT f.ctid AS tid, lowest.kind_vtime, lowest.vtime FROM lowest JOIN lane_floor f ON f.ctid = lowest.tid
        WHERE CASE  -- all classes share the clock; those without a ready lane follow it every five seconds
                WHEN lowest.kind_vtime IS NULL THEN lowest.vtime > f.vtime AND f.noted_at < now() - interval '5 seconds'
                ELSE lowest.vtime <> f.vtime OR lowest.vtime <> f.rising END
            AND (lowest.kind_vtime < f.vtime OR f.noted_by <= pg_snapshot_xmin(pg_current_snapshot())
                 OR f.noted_at < now() - interval '15 seconds')
        FOR UPDATE OF f SKIP LOCKED
    ) AS due_floor
    WHERE lane_floor.ctid = due_floor.tid;
    UPDATE lane_wake_floor SET
        wake_at = least(now() - interval '2 seconds', coalesce((
            SELECT lane.wake_at FROM lane
            WHERE lane.state = 'parked'
                AND lane.wake_at >= CASE WHEN whole THEN '-infinity' ELSE lane_wake_floor.wake_at END
            ORDER BY lane.wake_at LIMIT 1), 'infinity')),
        (seen, rising, written_by) = (
            SELECT CASE WHEN is_kept THEN seen ELSE rising END, CASE WHEN is_kept THEN rising
                ELSE pg_current_snapshot() END,
                pg_snapshot_xmin(CASE WHEN is_kept THEN seen ELSE rising END)
            FROM (  -- a dump may come from a server with higher transaction ids
                SELECT CASE WHEN is_foreign THEN '1:1:' ELSE lane_wake_floor.seen END AS seen,
                    CASE WHEN is_foreign THEN '1:1:' ELSE lane_wake_floor.rising END AS rising,
                    NOT is_foreign AND lane_wake_blocks_floor(lane_wake_floor.seen, lane_wake_floor.rising,
                        whole) AS is_kept
                FROM (SELECT pg_snapshot_xmax(lane_wake_floor.rising) > pg_snapshot_xmax(pg_current_snapshot())) AS c (is_foreign)
            ) AS next)
$$;
