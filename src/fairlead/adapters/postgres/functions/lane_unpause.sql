-- lane_unpause: let the next claim look at lanes that were parked for a pause.
-- Takes   lane_ids, notify: wake listening workers
-- Returns the number of lanes
-- Locks   the lanes parked for a pause, in the order of their ids
-- Needs   nothing. Other lanes are not locked, because claims would pass over them. The statement that parked a
--         lane had locked its pause, so the lane is visible without a lock. A rate hold or the sweep had not:
--         pause_sweep finds such a lane half a minute later
CREATE FUNCTION lane_unpause(lane_ids uuid[], notify boolean) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE mine tid[]; lanes integer;
BEGIN
    mine := lane_locked(ARRAY(
        SELECT named.lane_id FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id) AS named CROSS JOIN LATERAL (
            SELECT l.* FROM lane l WHERE l.lane_id = named.lane_id ORDER BY l.vtime DESC LIMIT 1) AS newest
        WHERE newest.park_reason = 'pause' AND newest.wake_at > now()));
    WITH woken AS (
        UPDATE lane SET wake_at = clock_timestamp()
        WHERE lane.ctid = ANY(mine) AND lane.park_reason = 'pause' AND lane.wake_at > now() RETURNING lane.queue
    ),
    told AS MATERIALIZED (
        SELECT count(pg_notify('fairlead_job', queue)) FROM (SELECT DISTINCT queue FROM woken) AS q WHERE notify
    )
    SELECT (SELECT count(*) FROM woken) INTO lanes FROM told;
    RETURN lanes;
END $$;
