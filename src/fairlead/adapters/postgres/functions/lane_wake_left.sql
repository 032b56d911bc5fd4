-- lane_wake_left: whether a row of lane_wake is left that the next floor would pass; `whole`: wherever it
-- stands.
CREATE FUNCTION lane_wake_left(seen pg_snapshot, rising pg_snapshot, whole boolean) RETURNS boolean
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
