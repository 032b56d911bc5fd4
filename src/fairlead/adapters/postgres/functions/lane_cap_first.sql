-- lane_cap_first: the first span of lane_cap_span in which a parked lane can stand: that of the wake floor, but
-- at most 15 s ago, because a statement that parks a lane may commit late.
CREATE FUNCTION lane_cap_first() RETURNS timestamptz LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT lane_cap_span(greatest(now() - interval '5 minutes', least(
        now() - interval '15 seconds', (SELECT f.wake_at FROM lane_wake_floor f))))
$$;
