-- lane_locked: the rows of these lanes, locked in the order of their ids.
-- Takes   lane_ids
-- Returns their ctids
-- Locks   these lanes; waits for claims, which hold lanes for some milliseconds
-- Needs   the change in a later statement, which sees where a row that was waited for has moved
CREATE FUNCTION lane_locked(lane_ids uuid[]) RETURNS tid[] LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id ORDER BY 1) AS named CROSS JOIN LATERAL (
        SELECT FROM lane l WHERE l.lane_id = named.lane_id ORDER BY l.vtime DESC LIMIT 1 FOR UPDATE) AS mine;
    RETURN ARRAY(
        SELECT newest.tid FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id) AS named CROSS JOIN LATERAL (
            SELECT l.ctid AS tid FROM lane l WHERE l.lane_id = named.lane_id ORDER BY l.vtime DESC LIMIT 1) AS newest);
END $$;
