-- lane_create: create lanes that do not exist, each with the names of its first available job.
-- Takes   lane_ids: those that have no row
-- Returns nothing
-- Locks   the new rows of lane_name, lane and lane_floor; waits for another statement that creates the same
--         lane
-- Needs   job_lane_idx
CREATE FUNCTION lane_create(lane_ids uuid[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    WITH head AS MATERIALIZED (
        SELECT first.* FROM unnest(lane_ids) AS input (lane_id) CROSS JOIN LATERAL (
            SELECT job.lane_id, job.queue, job.kind, coalesce(job.provider, '') AS provider, job.priority,
                job.tenant_id, job.group_key, job.run_at FROM job
            WHERE job.lane_id = input.lane_id AND job.state = 'available' AND job.crash_count = 0
            ORDER BY job.run_at, job.job_id LIMIT 1
        ) AS first
    ),
    new_name AS (  -- the first transaction creates the lane; the key order prevents deadlocks
        INSERT INTO lane_name (lane_id, tenant_id, group_key)
        SELECT DISTINCT lane_id, tenant_id, group_key FROM head ORDER BY lane_id
        ON CONFLICT DO NOTHING RETURNING lane_id
    ),
    new_lane AS MATERIALIZED (
        SELECT head.*, paused_until_locked(queue, kind, provider, tenant_id, group_key) AS paused
        FROM head JOIN new_name USING (lane_id)
    ),
    class AS MATERIALIZED (  -- one start for all lanes that join a class together
        SELECT queue, priority, kind, lane_join_vtime(queue, priority, kind) AS start FROM new_lane
        GROUP BY queue, priority, kind
    ),
    floors AS (
        INSERT INTO lane_floor (queue, level, kind)
        SELECT q.queue, level, q.kind FROM (SELECT DISTINCT queue, kind FROM new_lane) AS q, generate_series(0, 3) AS level
        WHERE NOT EXISTS (SELECT FROM lane_floor f WHERE f.queue = q.queue AND f.level = 3 AND f.kind = q.kind)
        ORDER BY q.queue, level, q.kind
        ON CONFLICT DO NOTHING
    )
    INSERT INTO lane (lane_id, queue, kind, provider, tenant_id, group_key, priority, level, stride, capped,
                      state, park_reason, wake_at, vtime)
    SELECT lane_id, queue, kind, provider, tenant_id, group_key, priority, priority, stride,
        is_capped(kind, tenant_id, group_key),
        CASE WHEN coalesce(paused, run_at) <= now() THEN 'ready' ELSE 'parked' END,
        CASE WHEN paused IS NOT NULL THEN 'pause' WHEN run_at > now() THEN 'due' END,
        CASE WHEN coalesce(paused, run_at) > now() THEN coalesce(paused, run_at) END,
        greatest(start, lane_last_vtime(queue, priority, tenant_id) + stride) + stride::bigint * ahead
    FROM (
        SELECT new_lane.*, class.start, tenant_stride(new_lane.tenant_id) AS stride,
            row_number() OVER (PARTITION BY queue, priority, new_lane.tenant_id ORDER BY run_at, lane_id) - 1 AS ahead
        FROM new_lane JOIN class USING (queue, priority, kind)
    ) AS lane_values;
END $$;
