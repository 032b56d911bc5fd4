-- lane_is_internal: whether a lane holds fairlead's own work, which only a pause of its kind parks.
CREATE FUNCTION lane_is_internal(of_lane uuid) RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN (SELECT is_internal_kind(l.kind) FROM lane l WHERE l.lane_id = of_lane ORDER BY l.vtime DESC LIMIT 1) IS TRUE;
END $$;
