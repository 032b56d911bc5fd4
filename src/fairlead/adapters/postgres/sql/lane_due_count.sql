-- lane_due_count: count those of these lanes that have due work.
-- Takes   lane_ids
-- Returns one row: lanes
-- Locks   nothing
-- Needs   job_lane_idx, once per lane
SELECT count(*) AS lanes FROM unnest(:lane_ids::uuid[]) AS input (lane_id) CROSS JOIN LATERAL (
    SELECT FROM job
    WHERE job.lane_id = input.lane_id AND job.state = 'available' AND job.crash_count = 0 AND job.run_at <= now()
        AND (job.expires_at IS NULL OR job.expires_at > now())
    LIMIT 1
) AS due_job
