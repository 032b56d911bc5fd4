-- lane_is_open: whether claims find a new job of a lane that is due at due_at without a call of lane_touch,
-- which is true of most lanes.
CREATE FUNCTION lane_is_open(of_lane uuid, due_at timestamptz) RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN (
        SELECT l.state = 'ready' AND l.mark_at < due_at FROM lane l WHERE l.lane_id = of_lane
        ORDER BY l.vtime DESC LIMIT 1
    ) IS TRUE;
END $$;
