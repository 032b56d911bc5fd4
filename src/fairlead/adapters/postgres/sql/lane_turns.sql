-- lane_turns: report the service of each tenant in each queue, the longest wait first (Q6).
-- Takes   queue, tenant_id (NULL: any), limit (rows), bound (jobs counted per row), quantum (the virtual time
--         of one turn of weight 1)
-- Returns tenant_id, queue, processed, running, waiting, ready_lanes, parked_lanes, consecutive,
--         rounds_without_service, waits_s (NULL: no lane is ready), weight, max_running
-- Locks   nothing
-- Needs   nothing for lane, which it reads once as a whole; for the tenants that it returns:
--         lane_name_tenant_idx, lane_find_idx, job_lane_idx, job_running_tenant_idx. A tenant's position is
--         that of its first lane. A lead counts as it was before the last turn, so that a small weight alone is
--         no lead
WITH tenant_class AS MATERIALIZED (
    SELECT tenant_id, queue, level, sum(served) AS served, count(*) FILTER (WHERE state = 'ready') AS ready,
        min(vtime) FILTER (WHERE state = 'ready') AS first_vtime,
        min(vtime - 3 * stride) FILTER (WHERE state = 'ready') AS previous_vtime,
        min(served_at) FILTER (WHERE state = 'ready') AS waits_since,
        max(ARRAY[extract(epoch FROM served_at)::float8, in_a_row]) FILTER (WHERE served > 0) AS last_turn
    FROM lane
    WHERE :queue::text IS NULL OR queue = :queue
    GROUP BY tenant_id, queue, level
),
class AS MATERIALIZED (SELECT queue, level, max(previous_vtime) AS leader_vtime FROM tenant_class GROUP BY queue, level),
tenant_row AS MATERIALIZED (
    -- as in the indexes
    SELECT tenant_class.tenant_id COLLATE "default" AS tenant_id, tenant_class.queue COLLATE "default" AS queue,
        sum(tenant_class.served)::bigint AS processed, sum(tenant_class.ready)::bigint AS ready_lanes,
        min(tenant_class.waits_since) AS waits_since, coalesce((max(tenant_class.last_turn))[2], 0)::integer AS consecutive,
        coalesce(max(greatest(0, class.leader_vtime - tenant_class.first_vtime) / :quantum::bigint),
            0) AS rounds_without_service
    FROM tenant_class JOIN class USING (queue, level)
    WHERE :tenant_id::text IS NULL OR tenant_class.tenant_id = :tenant_id
    GROUP BY tenant_class.tenant_id, tenant_class.queue
    ORDER BY waits_since, tenant_class.tenant_id, tenant_class.queue
    LIMIT :limit
)
SELECT tenant_row.tenant_id, tenant_row.queue, tenant_row.processed, running_count.jobs AS running,
    waiting_count.jobs AS waiting, tenant_row.ready_lanes,
    parked_count.lanes AS parked_lanes, tenant_row.consecutive, tenant_row.rounds_without_service,
    extract(epoch FROM now() - tenant_row.waits_since)::float8 AS waits_s,
    coalesce(s.weight, t.weight, 1) AS weight, coalesce(s.max_running, t.max_running) AS max_running
FROM tenant_row
    LEFT JOIN tenant_setting s ON s.tenant_id = tenant_row.tenant_id
    LEFT JOIN tenant_tier t ON t.name = s.tier
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM job
            WHERE job.tenant_id = tenant_row.tenant_id AND job.state = 'running' AND job.queue = tenant_row.queue
            LIMIT :bound::bigint) AS counted_row
    ) AS running_count
    CROSS JOIN LATERAL (  -- an array, so that the planner cannot reorder the joins that follow
        SELECT ARRAY(SELECT n.lane_id FROM lane_name n WHERE n.tenant_id = tenant_row.tenant_id) AS lane_ids
    ) AS tenant_lanes
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM unnest(tenant_lanes.lane_ids) AS n (lane_id)
                CROSS JOIN LATERAL (
                    SELECT l.queue FROM lane l WHERE l.lane_id = n.lane_id ORDER BY l.vtime DESC LIMIT 1) AS l
                CROSS JOIN LATERAL (
                    SELECT FROM job
                    WHERE job.lane_id = n.lane_id AND job.state = 'available' AND job.crash_count = 0
                    LIMIT :bound::bigint) AS counted_row
            WHERE l.queue = tenant_row.queue
            LIMIT :bound::bigint) AS counted_row
    ) AS waiting_count
    CROSS JOIN LATERAL (
        SELECT count(*) AS lanes FROM (
            SELECT FROM unnest(tenant_lanes.lane_ids) AS n (lane_id)
                CROSS JOIN LATERAL (
                    SELECT l.queue, l.state FROM lane l WHERE l.lane_id = n.lane_id ORDER BY l.vtime DESC LIMIT 1) AS l
                CROSS JOIN LATERAL (
                    SELECT FROM job
                    WHERE job.lane_id = n.lane_id AND job.state = 'available'
                        AND job.crash_count = 0 LIMIT 1) AS counted_row
            WHERE l.queue = tenant_row.queue AND l.state = 'parked'
            LIMIT :bound::bigint) AS counted_row
    ) AS parked_count
ORDER BY tenant_row.waits_since, tenant_row.tenant_id, tenant_row.queue
