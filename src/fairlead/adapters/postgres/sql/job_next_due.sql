-- job_next_due: find when there may be a job to claim.
-- Takes   queues, kinds and providers (empty: any)
-- Returns one row: due_in_s; 0 or less if a lane is ready or a suspect is due, NULL if nothing waits
-- Locks   nothing
-- Needs   lane_ready_idx; lane_wake_idx; job_suspect_idx. If 200 parked lanes of other queues come first, the
--         time is too early, which costs one claim without a job
SELECT extract(epoch FROM min(due_at) - now())::float8 AS due_in_s
FROM (
    SELECT now() AS due_at FROM lane_floor f, unnest(:queues::text[]) AS input (queue)
    WHERE f.queue = input.queue AND (cardinality(:kinds::text[]) = 0 OR f.kind = ANY(:kinds::text[])) AND (
        SELECT true FROM lane  -- no EXISTS, which may be planned as a join that reads all lanes
        WHERE lane.queue = f.queue AND lane.kind = f.kind AND lane.level = f.level AND lane.state = 'ready'
            AND lane.vtime >= f.vtime
            AND (cardinality(:providers::text[]) = 0 OR lane.provider = ANY(:providers::text[]))
        ORDER BY lane.vtime LIMIT 1)
    UNION ALL
    SELECT coalesce(
        min(wake_at) FILTER (WHERE queue = ANY(:queues::text[])
            AND (cardinality(:kinds::text[]) = 0 OR kind = ANY(:kinds::text[]))
            AND (cardinality(:providers::text[]) = 0 OR provider = ANY(:providers::text[]))),
        CASE WHEN count(*) = 200 THEN max(wake_at) END)  -- beyond 200 lanes it does not read on
    FROM (
        SELECT wake_at, queue, kind, provider FROM lane
        WHERE state = 'parked' AND wake_at < 'infinity' AND wake_at >= (SELECT f.wake_at FROM lane_wake_floor f)
        ORDER BY wake_at LIMIT 200) AS parked_lane
    UNION ALL
    SELECT now() WHERE lane_wake_has_new()
    UNION ALL
    SELECT suspect.due_at FROM unnest(:queues::text[]) AS input (queue) CROSS JOIN LATERAL (
        SELECT greatest(min(run_at), paused_until(queue, kind, coalesce(provider, ''), tenant_id, group_key)) AS due_at
        FROM job
        WHERE job.queue = input.queue AND job.state = 'available' AND job.crash_count > 0
            AND (cardinality(:kinds::text[]) = 0 OR job.kind = ANY(:kinds::text[]))
            AND (cardinality(:providers::text[]) = 0 OR job.provider = ANY(:providers::text[]))
        GROUP BY queue, kind, provider, tenant_id, group_key  -- a crash may leave thousands of suspects with a few names
    ) AS suspect
    WHERE suspect.due_at < 'infinity'
) AS candidate
