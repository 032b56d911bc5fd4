-- lane_sweep_lost: repair lanes that have available jobs but are neither ready nor parked with a wake time.
-- Takes   nothing
-- Returns the number of lanes that it repaired
-- Locks   what lane_touch locks
-- Needs   job_lane_idx, which it follows from lane to lane
CREATE FUNCTION lane_sweep_lost() RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_bitmapscan = off
AS $$
DECLARE lost uuid[]; due_ats timestamptz[]; repaired_lanes integer;
BEGIN
    -- delete the floors of kinds without lanes, and add those that lanes lack
    DELETE FROM lane_floor f WHERE NOT EXISTS (
        SELECT FROM lane l WHERE l.queue = f.queue AND l.kind = f.kind);
    INSERT INTO lane_floor (queue, level, kind)
    SELECT l.queue, level, l.kind FROM (SELECT DISTINCT queue, kind FROM lane) AS l, generate_series(0, 3) AS level
    ON CONFLICT DO NOTHING;

    PERFORM lane_raise_floors(true);
    WITH RECURSIVE first_job AS (  -- the first job of each lane, from lane to lane along job_lane_idx
        (SELECT lane_id, run_at, job_id FROM job WHERE state = 'available' AND crash_count = 0
         ORDER BY lane_id, run_at, job_id LIMIT 1)
        UNION ALL
        SELECT next_job.* FROM first_job CROSS JOIN LATERAL (
            SELECT lane_id, run_at, job_id FROM job
            WHERE state = 'available' AND crash_count = 0 AND lane_id > first_job.lane_id
            ORDER BY lane_id, run_at, job_id LIMIT 1) AS next_job
    )
    SELECT array_agg(first_job.lane_id), array_agg(first_job.run_at) INTO lost, due_ats
    FROM first_job LEFT JOIN LATERAL (
        SELECT l.state, l.park_reason, l.wake_at, l.mark_at, l.mark_id FROM lane l
        WHERE l.lane_id = first_job.lane_id ORDER BY l.vtime DESC LIMIT 1
    ) AS lane ON true
    WHERE lane.state IS NULL OR lane.state = 'idle'
        OR (first_job.run_at, first_job.job_id) < (lane.mark_at, lane.mark_id)
        OR lane.park_reason = 'due' AND lane.wake_at > first_job.run_at;
    repaired_lanes := coalesce(cardinality(lost), 0);
    IF lost IS NOT NULL THEN
        DELETE FROM lane_name WHERE lane_id = ANY(lost)  -- a name without a lane
            AND NOT EXISTS (SELECT FROM lane WHERE lane.lane_id = lane_name.lane_id);
        PERFORM lane_touch(lost, due_ats);
    END IF;
    RETURN repaired_lanes;
END $$;
