-- 0036_wake_rows_passed: a long transaction elsewhere makes looks for lanes to wake no dearer; nor do ended sessions (Q12).
-- Phase   pre (the version before it goes by lane_wake_floor.written_by, which stays a lower bound)
-- Needs   0026_what_lanes_were

-- The floor of lane_wake was the id of the oldest transaction at work: while one that had written something stayed open,
-- each look read all rows written and deleted since. Now it is a snapshot: what that sees has been seen to. Looks read
-- what came later, and the rows of the transactions that were at work then, each by its id.
ALTER TABLE lane_wake_floor
    ADD COLUMN seen pg_snapshot NOT NULL DEFAULT '1:1:',
    ADD COLUMN rising pg_snapshot NOT NULL DEFAULT '1:1:';  -- the next floor, once nothing is left that it sees

CREATE FUNCTION lane_wake_unseen() RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT EXISTS (SELECT FROM lane_wake w WHERE w.written_by >= pg_snapshot_xmax(f.seen))
        OR EXISTS (SELECT FROM lane_wake w WHERE w.written_by = ANY(ARRAY(SELECT pg_snapshot_xip(f.seen))))
    FROM lane_wake_floor f
$$;

-- The next of these rows, the caller's until its transaction ends.
CREATE FUNCTION lane_wake_rows(most integer) RETURNS SETOF tid LANGUAGE sql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT w.tid FROM lane_wake_floor f CROSS JOIN LATERAL (
        SELECT w.ctid AS tid FROM lane_wake w WHERE w.written_by = ANY(ARRAY(SELECT pg_snapshot_xip(f.seen)))
        LIMIT most FOR UPDATE SKIP LOCKED) AS w
    UNION ALL
    SELECT w.tid FROM lane_wake_floor f CROSS JOIN LATERAL (
        SELECT w.ctid AS tid FROM lane_wake w WHERE w.written_by >= pg_snapshot_xmax(f.seen)
        ORDER BY w.written_by LIMIT most FOR UPDATE SKIP LOCKED) AS w
$$;

-- Whether a row is left that the next floor would pass. `whole`: wherever it stands.
CREATE FUNCTION lane_wake_left(seen pg_snapshot, rising pg_snapshot, whole boolean) RETURNS boolean
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT EXISTS (
            SELECT FROM lane_wake w
            WHERE w.written_by >= CASE WHEN whole THEN '0' ELSE pg_snapshot_xmax(seen) END
                AND w.written_by < pg_snapshot_xmax(rising) AND pg_visible_in_snapshot(w.written_by, rising))
        OR EXISTS (
            SELECT FROM lane_wake w
            WHERE w.written_by = ANY(ARRAY(SELECT pg_snapshot_xip(seen)))
                AND pg_visible_in_snapshot(w.written_by, rising))
$$;

DO $$
DECLARE
    changes text[] := ARRAY[
        ['lane_wake_up', 'IF EXISTS (SELECT FROM lane_wake WHERE written_by >= seen_to.written_by) THEN',
         'IF lane_wake_unseen() THEN'],
        ['lane_wake_up', '(
                    SELECT ctid FROM lane_wake WHERE written_by >= seen_to.written_by
                    ORDER BY written_by LIMIT most FOR UPDATE SKIP LOCKED)', '(SELECT lane_wake_rows(most))'],
        ['lane_raise_floors', '        -- what an older transaction wrote is visible to this statement, or was undone
        written_by = coalesce((
            SELECT w.written_by FROM lane_wake w
            WHERE w.written_by >= CASE WHEN whole THEN ''0'' ELSE lane_wake_floor.written_by END
                AND w.written_by < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY w.written_by LIMIT 1), pg_snapshot_xmin(pg_current_snapshot()))', '        (seen, rising, written_by) = (
            SELECT CASE WHEN stays THEN seen ELSE rising END, CASE WHEN stays THEN rising ELSE pg_current_snapshot() END,
                pg_snapshot_xmin(CASE WHEN stays THEN seen ELSE rising END)
            FROM (  -- a dump may come from a server that has counted further
                SELECT CASE WHEN ahead THEN ''1:1:'' ELSE lane_wake_floor.seen END AS seen,
                    CASE WHEN ahead THEN ''1:1:'' ELSE lane_wake_floor.rising END AS rising,
                    NOT ahead AND lane_wake_left(lane_wake_floor.seen, lane_wake_floor.rising, whole) AS stays
                FROM (SELECT pg_snapshot_xmax(lane_wake_floor.rising) > pg_snapshot_xmax(pg_current_snapshot())) AS c (ahead)
            ) AS next)']];
    change text[];
    made text;
BEGIN
    FOREACH change SLICE 1 IN ARRAY changes LOOP
        made := pg_get_functiondef(change[1]::regproc);
        IF strpos(made, change[2]) = 0 THEN
            RAISE '% has no %', change[1], change[2];
        END IF;
        EXECUTE replace(made, change[2], change[3]);
    END LOOP;
END $$;

-- What is open: commands, too, leave a row, for a week.
CREATE INDEX worker_session_open_idx ON worker_session (session_id) WHERE lost_at IS NULL AND stopped_at IS NULL;
