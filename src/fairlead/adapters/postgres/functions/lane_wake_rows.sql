-- lane_wake_rows: lock the next rows of lane_wake that no call of lane_wake_up has handled, and return where
-- they are.
-- Takes   most: the limit of each of its two parts
-- Returns their ctids
-- Locks   these rows; passes over locked ones
-- Needs   lane_wake_written_idx
CREATE FUNCTION lane_wake_rows(most integer) RETURNS SETOF tid LANGUAGE sql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT w.tid FROM lane_wake_floor f CROSS JOIN LATERAL (
        SELECT w.ctid AS tid FROM lane_wake w WHERE w.written_by = ANY(ARRAY(SELECT pg_snapshot_xip(f.seen)))
        LIMIT most FOR UPDATE SKIP LOCKED) AS w
    UNION ALL
    SELECT w.tid FROM lane_wake_floor f CROSS JOIN LATERAL (
        SELECT w.ctid AS tid FROM lane_wake w WHERE w.written_by >= pg_snapshot_xmax(f.seen)
        ORDER BY w.written_by LIMIT most FOR UPDATE SKIP LOCKED) AS w
$$;
