-- lane_create: make lanes that do not exist, each with the names of its first available job.
-- Takes   missing: ids of lanes
-- Returns nothing
-- Locks   the new rows of lane_name, lane and lane_floor; waits for another statement that makes the same lane
-- Needs   job_lane_idx
CREATE FUNCTION lane_create(missing uuid[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    WITH head AS MATERIALIZED (
        SELECT first.* FROM unnest(missing) AS asked (lane_id) CROSS JOIN LATERAL (
            SELECT job.lane_id, job.queue, job.kind, coalesce(job.provider, '') AS provider, job.priority,
                job.tenant_id, job.group_key, job.run_at FROM job
            WHERE job.lane_id = asked.lane_id AND job.state = 'available' AND job.crash_count = 0
            ORDER BY job.run_at, job.job_id LIMIT 1
        ) AS first
    ),
    new AS (  -- the first transaction creates the lane; in key order, so that two callers never deadlock
        INSERT INTO lane_name (lane_id, tenant_id, group_key)
        SELECT DISTINCT lane_id, tenant_id, group_key FROM head ORDER BY lane_id
        ON CONFLICT DO NOTHING RETURNING lane_id
    ),
    named AS MATERIALIZED (
        SELECT head.*, held_until(queue, kind, provider, tenant_id, group_key) AS paused
        FROM head JOIN new USING (lane_id)
    ),
    class AS MATERIALIZED (  -- one start for all that join a class together
        SELECT queue, priority, kind, lane_start(queue, priority, kind) AS start FROM named
        GROUP BY queue, priority, kind
    ),
    floors AS (
        INSERT INTO lane_floor (queue, level, kind)
        SELECT q.queue, level, q.kind FROM (SELECT DISTINCT queue, kind FROM named) AS q, generate_series(0, 3) AS level
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
        greatest(start, lane_last(queue, priority, tenant_id) + stride) + stride::bigint * before
    FROM (
        SELECT named.*, class.start, stride_of(named.tenant_id) AS stride,
            row_number() OVER (PARTITION BY queue, priority, named.tenant_id ORDER BY run_at, lane_id) - 1 AS before
        FROM named JOIN class USING (queue, priority, kind)
    ) AS joining;
END $$;
