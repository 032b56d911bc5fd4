-- lane_unpause: wake lanes that were parked for a pause, so that the next claim checks them.
-- Takes   lane_ids, notify: wake listening workers
-- Returns the number of lanes
-- Locks   the lanes parked for a pause, in the order of their ids
-- Needs   nothing. Other lanes are not locked, because claims would pass over them. A statement that parks a
--         lane locks its pause, so the lane is visible here without a lock. A rate hold and the sweep do not
--         lock it: pause_sweep finds such a lane half a minute later
CREATE FUNCTION lane_unpause(lane_ids uuid[], notify boolean) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE lane_tids tid[]; lane_count integer;
BEGIN
    lane_tids := lane_lock(ARRAY(
        SELECT input.lane_id FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id) AS input CROSS JOIN LATERAL (
            SELECT l.* FROM lane l WHERE l.lane_id = input.lane_id ORDER BY l.vtime DESC LIMIT 1) AS newest
        WHERE newest.park_reason = 'pause' AND newest.wake_at > now()));
    WITH woken AS (
        UPDATE lane SET wake_at = clock_timestamp()
        WHERE lane.ctid = ANY(lane_tids) AND lane.park_reason = 'pause' AND lane.wake_at > now() RETURNING lane.queue
    ),
    notification AS MATERIALIZED (
        SELECT count(pg_notify('fairlead_job', queue)) FROM (SELECT DISTINCT queue FROM woken) AS q WHERE notify
    )
    SELECT (SELECT count(*) FROM woken) INTO lane_count FROM notification;
    RETURN lane_count;
END $$;
