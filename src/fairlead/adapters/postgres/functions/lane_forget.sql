-- lane_forget: delete lanes that have had no work for a day.
-- Takes   most: the limit
-- Returns the number of deleted lanes
-- Locks   these lanes; passes over locked ones
-- Needs   nothing
CREATE FUNCTION lane_forget(most integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE deleted_lanes integer;
BEGIN
    WITH deleted_lane AS (
        DELETE FROM lane WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM lane WHERE state = 'idle' AND served_at < now() - interval '1 day'
            LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING lane_id
    ),
    names AS (DELETE FROM lane_name WHERE lane_id IN (SELECT lane_id FROM deleted_lane))
    SELECT count(*) INTO deleted_lanes FROM deleted_lane;
    RETURN deleted_lanes;
END $$;
