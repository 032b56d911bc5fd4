-- lane_wake_has_new: whether lane_wake has a row that no call of lane_wake_up has handled.
CREATE FUNCTION lane_wake_has_new() RETURNS boolean LANGUAGE sql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT EXISTS (SELECT FROM lane_wake w WHERE w.written_by >= pg_snapshot_xmax(f.seen))
        OR EXISTS (SELECT FROM lane_wake w WHERE w.written_by = ANY(ARRAY(SELECT pg_snapshot_xip(f.seen))))
    FROM lane_wake_floor f
$$;
