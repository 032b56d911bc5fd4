-- lane_sweep_lost: repair lanes of available jobs that are neither ready nor parked with a wake time.
-- Takes   nothing
-- Returns the number of lanes that it repaired
-- Locks   what lane_touch locks
-- Needs   job_lane_idx: it walks from lane to lane
CREATE FUNCTION lane_sweep_lost() RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_bitmapscan = off
AS $$
DECLARE lost uuid[]; due_ats timestamptz[]; opened integer;
BEGIN
    -- a kind that is gone leaves no floor behind; a lane that is there has one
    DELETE FROM lane_floor f WHERE NOT EXISTS (
        SELECT FROM lane l WHERE l.queue = f.queue AND l.kind = f.kind);
    INSERT INTO lane_floor (queue, level, kind)
    SELECT l.queue, level, l.kind FROM (SELECT DISTINCT queue, kind FROM lane) AS l, generate_series(0, 3) AS level
    ON CONFLICT DO NOTHING;

    PERFORM lane_raise_floors(true);
    WITH RECURSIVE heads AS (  -- the first job of each lane: a walk from lane to lane along job_lane_idx
        (SELECT lane_id, run_at, job_id FROM job WHERE state = 'available' AND crash_count = 0
         ORDER BY lane_id, run_at, job_id LIMIT 1)
        UNION ALL
        SELECT next.* FROM heads CROSS JOIN LATERAL (
            SELECT lane_id, run_at, job_id FROM job
            WHERE state = 'available' AND crash_count = 0 AND lane_id > heads.lane_id
            ORDER BY lane_id, run_at, job_id LIMIT 1) AS next
    )
    SELECT array_agg(heads.lane_id), array_agg(heads.run_at) INTO lost, due_ats
    FROM heads LEFT JOIN LATERAL (
        SELECT l.state, l.park_reason, l.wake_at, l.mark_at, l.mark_id FROM lane l
        WHERE l.lane_id = heads.lane_id ORDER BY l.vtime DESC LIMIT 1
    ) AS lane ON true
    WHERE lane.state IS NULL OR lane.state = 'idle'
        OR (heads.run_at, heads.job_id) < (lane.mark_at, lane.mark_id)
        OR lane.park_reason = 'due' AND lane.wake_at > heads.run_at;
    opened := coalesce(cardinality(lost), 0);
    IF lost IS NOT NULL THEN
        DELETE FROM lane_name WHERE lane_id = ANY(lost)  -- a name without its lane
            AND NOT EXISTS (SELECT FROM lane WHERE lane.lane_id = lane_name.lane_id);
        PERFORM lane_touch(lost, due_ats);
    END IF;
    RETURN opened;
END $$;
