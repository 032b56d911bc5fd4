-- lane_cap_span_first: the first span of lane_cap_span that can have parked lanes: that of the wake floor, but
-- at least 15 s back, because a statement that parks a lane may commit late.
CREATE FUNCTION lane_cap_span_first() RETURNS timestamptz LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT lane_cap_span(greatest(now() - interval '5 minutes', least(
        now() - interval '15 seconds', (SELECT f.wake_at FROM lane_wake_floor f))))
$$;
