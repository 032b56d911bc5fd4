-- lane_cap_span: the five seconds in which a lane under a full cap wakes, as part of an index. Such a lane is
-- parked for a second, again and again, and while an old snapshot is open each time leaves an index entry. The
-- span separates the old entries, so that the end of a job under a cap does not read all of them.
CREATE FUNCTION lane_cap_span(wake_at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT date_bin('5 seconds', wake_at, '2000-01-01 00:00:00+00')
$$;
