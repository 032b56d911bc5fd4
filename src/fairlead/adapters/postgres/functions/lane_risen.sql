-- lane_risen: the class of a lane that waits since then: one up for each quarter of five minutes
-- (LONGEST_WAIT_S in policy).
CREATE FUNCTION lane_risen(home smallint, since timestamptz) RETURNS smallint LANGUAGE sql STABLE AS $$
    SELECT greatest(0, home - floor(extract(epoch FROM now() - since) / 75))::smallint
$$;
