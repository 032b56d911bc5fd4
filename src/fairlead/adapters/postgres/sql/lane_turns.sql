-- lane_turns: the service of each tenant in each queue, the longest wait first (Q6).
-- Takes   queue, tenant_id (NULL: any), limit (rows), bound (jobs counted of one row), quantum (virtual time of one
--         turn of weight 1)
-- Returns tenant_id, queue, processed, running, waiting, ready_lanes, parked_lanes, consecutive,
--         rounds_without_service, waits_s (NULL: none is ready), weight, max_running
-- Locks   nothing
-- Needs   lane is read once, from end to end; of the tenants shown: lane_name_tenant_idx, lane_find_idx,
--         job_lane_idx, job_running_tenant_idx. A tenant stands where the first of its lanes does; others are ahead
--         by as much as they were before their last turn, so that a small weight counts for no lead
WITH line AS MATERIALIZED (
    SELECT tenant_id, queue, level, sum(served) AS served, count(*) FILTER (WHERE state = 'ready') AS ready,
        min(vtime) FILTER (WHERE state = 'ready') AS front,
        min(vtime - 3 * stride) FILTER (WHERE state = 'ready') AS before,
        min(served_at) FILTER (WHERE state = 'ready') AS waits_since,
        max(ARRAY[extract(epoch FROM served_at)::float8, in_a_row]) FILTER (WHERE served > 0) AS last
    FROM lane
    WHERE :queue::text IS NULL OR queue = :queue
    GROUP BY tenant_id, queue, level
),
class AS MATERIALIZED (SELECT queue, level, max(before) AS ahead FROM line GROUP BY queue, level),
shown AS MATERIALIZED (
    SELECT line.tenant_id COLLATE "default" AS tenant_id, line.queue COLLATE "default" AS queue,  -- as in the indexes
        sum(line.served)::bigint AS processed, sum(line.ready)::bigint AS ready_lanes,
        min(line.waits_since) AS waits_since, coalesce((max(line.last))[2], 0)::integer AS consecutive,
        coalesce(max(greatest(0, class.ahead - line.front) / :quantum::bigint), 0) AS rounds_without_service
    FROM line JOIN class USING (queue, level)
    WHERE :tenant_id::text IS NULL OR line.tenant_id = :tenant_id
    GROUP BY line.tenant_id, line.queue
    ORDER BY waits_since, line.tenant_id, line.queue
    LIMIT :limit
)
SELECT shown.tenant_id, shown.queue, shown.processed, runs.jobs AS running, waits.jobs AS waiting, shown.ready_lanes,
    parked.lanes AS parked_lanes, shown.consecutive, shown.rounds_without_service,
    extract(epoch FROM now() - shown.waits_since)::float8 AS waits_s,
    coalesce(s.weight, t.weight, 1) AS weight, coalesce(s.max_running, t.max_running) AS max_running
FROM shown
    LEFT JOIN tenant_setting s ON s.tenant_id = shown.tenant_id
    LEFT JOIN tenant_tier t ON t.name = s.tier
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM job
            WHERE job.tenant_id = shown.tenant_id AND job.state = 'running' AND job.queue = shown.queue
            LIMIT :bound::bigint) AS one
    ) AS runs
    CROSS JOIN LATERAL (  -- an array, so that the planner cannot turn what follows around
        SELECT ARRAY(SELECT n.lane_id FROM lane_name n WHERE n.tenant_id = shown.tenant_id) AS lane_ids
    ) AS own
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM unnest(own.lane_ids) AS n (lane_id)
                CROSS JOIN LATERAL (
                    SELECT l.queue FROM lane l WHERE l.lane_id = n.lane_id ORDER BY l.vtime DESC LIMIT 1) AS l
                CROSS JOIN LATERAL (
                    SELECT FROM job
                    WHERE job.lane_id = n.lane_id AND job.state = 'available' AND job.crash_count = 0
                    LIMIT :bound::bigint) AS one
            WHERE l.queue = shown.queue
            LIMIT :bound::bigint) AS one
    ) AS waits
    CROSS JOIN LATERAL (
        SELECT count(*) AS lanes FROM (
            SELECT FROM unnest(own.lane_ids) AS n (lane_id)
                CROSS JOIN LATERAL (
                    SELECT l.queue, l.state FROM lane l WHERE l.lane_id = n.lane_id ORDER BY l.vtime DESC LIMIT 1) AS l
                CROSS JOIN LATERAL (
                    SELECT FROM job
                    WHERE job.lane_id = n.lane_id AND job.state = 'available' AND job.crash_count = 0 LIMIT 1) AS one
            WHERE l.queue = shown.queue AND l.state = 'parked'
            LIMIT :bound::bigint) AS one
    ) AS parked
ORDER BY shown.waits_since, shown.tenant_id, shown.queue
