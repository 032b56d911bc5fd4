-- lane_aged_level: the class of a lane that has waited since then: one class up for each quarter of five
-- minutes (LONGEST_WAIT_S in policy).
CREATE FUNCTION lane_aged_level(priority smallint, since timestamptz) RETURNS smallint LANGUAGE sql STABLE AS $$
    SELECT greatest(0, priority - floor(extract(epoch FROM now() - since) / 75))::smallint
$$;
