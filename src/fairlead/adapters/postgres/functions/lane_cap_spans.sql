-- lane_cap_spans: all spans of lane_cap_span that can have parked lanes, and the next one, because this
-- statement may have waited for a lock.
CREATE FUNCTION lane_cap_spans() RETURNS SETOF timestamptz LANGUAGE sql STABLE ROWS 5
SET search_path FROM CURRENT
AS $$
    SELECT span FROM generate_series(
        (SELECT lane_cap_span_first()), lane_cap_span(now() + interval '5 seconds'), interval '5 seconds') AS span
$$;
