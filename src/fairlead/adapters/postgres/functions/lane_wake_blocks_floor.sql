-- lane_wake_blocks_floor: whether lane_wake still has a row that the next floor would leave behind; `whole`:
-- anywhere in the table.
CREATE FUNCTION lane_wake_blocks_floor(seen pg_snapshot, rising pg_snapshot, whole boolean) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT EXISTS (
            SELECT FROM lane_wake w
            WHERE w.written_by >= CASE WHEN whole THEN '0' ELSE pg_snapshot_xmax(seen) END
                AND w.written_by < pg_snapshot_xmax(rising) AND pg_visible_in_snapshot(w.written_by, rising))
        OR EXISTS (
            SELECT FROM lane_wake w
            WHERE w.written_by = ANY(ARRAY(SELECT pg_snapshot_xip(seen)))
                AND pg_visible_in_snapshot(w.written_by, rising))
$$;
