-- 0032_resumes_look_first: whoever resumes what is not paused locks nothing (Q7).
-- Phase   pre (the version before it calls the same function)
-- Needs   0027_lanes_moved_from_above

-- As in 0027. A lane that no pause holds is not locked: claims would pass over it. Whoever parked one for a pause had locked
-- that, and its end waited for him, so it is to be seen without a lock. A hold of a rate, or the sweep, that parks one for
-- it at the same moment has not: pause_sweep finds such a lane, half a minute later.
CREATE OR REPLACE FUNCTION lane_unpause(lane_ids uuid[], notify boolean) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
