-- lane_lock: lock the rows of these lanes in the order of their ids, and return where they are.
-- Takes   lane_ids
-- Returns their ctids
-- Locks   these lanes; waits for claims, which hold lanes for some milliseconds
-- Needs   a later statement for the change, because only that sees where a row has moved while this one waited
CREATE FUNCTION lane_lock(lane_ids uuid[]) RETURNS tid[] LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id ORDER BY 1) AS input CROSS JOIN LATERAL (
        SELECT FROM lane l WHERE l.lane_id = input.lane_id ORDER BY l.vtime DESC LIMIT 1 FOR UPDATE) AS locked_lane;
    RETURN ARRAY(
        SELECT newest.tid FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id) AS input CROSS JOIN LATERAL (
            SELECT l.ctid AS tid FROM lane l WHERE l.lane_id = input.lane_id ORDER BY l.vtime DESC LIMIT 1) AS newest);
END $$;
