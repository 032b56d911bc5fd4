-- lane_next_at: when the next job of a lane is due that has none due now; NULL if it has none.
CREATE FUNCTION lane_next_at(of_lane uuid) RETURNS timestamptz LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT run_at FROM job
    WHERE lane_id = of_lane AND state = 'available' AND crash_count = 0
        AND run_at > now() AND (expires_at IS NULL OR expires_at > now())
    ORDER BY run_at LIMIT 1
$$;
