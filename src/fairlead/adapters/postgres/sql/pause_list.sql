-- pause_list: list the pauses in force, the newest first, each with the number of lanes with due work that it
-- delays.
-- Takes   limit, bound (count no more lanes of a pause than this)
-- Returns scope, tenant_id, key, until (NULL: until it is resumed), reason, paused_by, since, lanes
-- Locks   nothing
-- Needs   the indexes of lane_in_scope and of lane_due_count
SELECT p.scope, p.tenant_id, p.key, nullif(p.until, 'infinity') AS until, p.reason, p.paused_by, p.since, lane_count.lanes
FROM pause p CROSS JOIN LATERAL (
    SELECT count(*) AS lanes FROM (
        SELECT FROM (
            SELECT lane_id FROM lane_name WHERE p.scope = 'tenant' AND tenant_id = p.key
            UNION ALL
            SELECT lane_id FROM lane_name
            WHERE p.scope IN ('group', 'rate') AND p.tenant_id <> '' AND tenant_id = p.tenant_id AND group_key = p.key
            UNION ALL
            SELECT lane_id FROM lane_name
            WHERE p.scope = 'group' AND p.tenant_id = '' AND group_key = p.key AND group_key <> ''
            UNION ALL
            SELECT lane_id FROM lane
            WHERE p.scope IN ('queue', 'kind', 'provider')
                AND p.key = CASE p.scope WHEN 'queue' THEN queue WHEN 'kind' THEN kind ELSE provider END
        ) AS scope_name CROSS JOIN LATERAL (
            SELECT FROM job
            WHERE job.lane_id = scope_name.lane_id AND job.state = 'available' AND job.crash_count = 0
                AND job.run_at <= now() AND (job.expires_at IS NULL OR job.expires_at > now())
            LIMIT 1
        ) AS due_job
        LIMIT :bound::bigint
    ) AS due_lane
) AS lane_count
WHERE p.until > now()
ORDER BY p.since DESC, p.scope, p.tenant_id, p.key
LIMIT :limit
