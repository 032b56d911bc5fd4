-- job_explain: read the state of a job, and all that may delay it (Q14).
-- Takes   job_id, asker (a session that runs no jobs, and is not counted among the live workers; or NULL),
--         bound (count no more jobs and lanes than this)
-- Returns the columns of JobView, and those of fairlead.policy.jobs.explain.Facts: worker_host, follows,
--         worker_pid, silent_s, lease_s, workers, handled, lane_state, park_reason, wake_at, served_at, unseen
--         (its lane is ready, but below where claims begin to read), ahead_in_lane, lanes_ahead and
--         urgent_lanes (NULL while its lane is not ready), pauses, full_caps (JSON), dead_letter_id; or no row
-- Locks   nothing
-- Needs   the primary key; lane_find_idx; lane_ready_idx; job_lane_idx; job_running_since_idx,
--         job_running_group_since_idx; dead_letter_job_idx
SELECT j.job_id, j.queue, j.kind, j.tenant_id, j.provider, j.group_key, j.tags, j.state,
    CASE WHEN j.state <> 'available' OR j.run_at <= now() THEN j.state
         WHEN j.attempt > 0 THEN 'retryable' ELSE 'scheduled' END AS label,
    j.priority, j.attempt, j.crash_count, j.run_at, j.created_at, j.finished_at, j.expires_at, j.unique_key, j.args,
    j.failures, j.result, j.follow_at IS NOT NULL AS follows,
    now() AS now, j.started_at, worker.host AS worker_host, worker.pid AS worker_pid,
    extract(epoch FROM now() - worker.heartbeat_at)::float8 AS silent_s,
    extract(epoch FROM worker.lease)::float8 AS lease_s, alive.workers, kind_is_handled(j.queue, j.kind) AS handled,
    job_lane.state AS lane_state, job_lane.park_reason, nullif(job_lane.wake_at, 'infinity') AS wake_at, job_lane.served_at,
    job_lane.state = 'ready' AND NOT coalesce(job_lane.is_readable, false) AS unseen,
    in_lane.jobs AS ahead_in_lane, earlier_lanes.lanes AS lanes_ahead, urgent_class.lanes AS urgent_lanes,
    pause_list.pauses, cap_list.caps AS full_caps, entry.dead_letter_id
FROM job j
    LEFT JOIN worker_session worker ON worker.session_id = j.session_id
    CROSS JOIN LATERAL (
        SELECT count(*) AS workers FROM worker_session w
        WHERE w.lost_at IS NULL AND w.stopped_at IS NULL AND w.heartbeat_at >= now() - w.lease
            AND w.session_id IS DISTINCT FROM :asker::uuid
    ) AS alive
    LEFT JOIN LATERAL (
        SELECT l.*, l.vtime >= f.vtime AS is_readable FROM lane l
            LEFT JOIN lane_floor f ON f.queue = l.queue AND f.level = l.level AND f.kind = l.kind
        WHERE l.lane_id = j.lane_id ORDER BY l.vtime DESC LIMIT 1
    ) AS job_lane ON j.state = 'available'
    LEFT JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM job a
            WHERE a.lane_id = j.lane_id AND a.state = 'available' AND a.crash_count = 0
                AND (a.run_at, a.job_id) < (j.run_at, j.job_id)
            LIMIT :bound::bigint) AS counted_row
    ) AS in_lane ON j.state = 'available' AND j.crash_count = 0
    LEFT JOIN LATERAL (
        SELECT count(*) AS lanes FROM (
            SELECT FROM lane_floor f CROSS JOIN LATERAL (
                SELECT FROM lane l
                WHERE l.queue = f.queue AND l.kind = f.kind AND l.level = f.level AND l.state = 'ready'
                    AND l.vtime >= f.vtime AND l.vtime < job_lane.vtime
                LIMIT :bound::bigint) AS counted_row
            WHERE f.queue = job_lane.queue AND f.level = job_lane.level
            LIMIT :bound::bigint) AS counted_row
    ) AS earlier_lanes ON job_lane.state = 'ready'
    LEFT JOIN LATERAL (
        SELECT count(*) AS lanes FROM (
            SELECT FROM lane_floor f CROSS JOIN LATERAL (
                SELECT FROM lane l
                WHERE l.queue = f.queue AND l.kind = f.kind AND l.level = f.level AND l.state = 'ready'
                    AND l.vtime >= f.vtime
                LIMIT :bound::bigint) AS counted_row
            WHERE f.queue = job_lane.queue AND f.level < job_lane.level
            LIMIT :bound::bigint) AS counted_row
    ) AS urgent_class ON job_lane.state = 'ready'
    CROSS JOIN LATERAL (
        SELECT jsonb_agg(jsonb_build_object(
            'scope', p.scope, 'tenant_id', nullif(p.tenant_id, ''), 'key', p.key,
            'until', CASE WHEN p.until < 'infinity' THEN p.until END, 'reason', p.reason, 'by', p.paused_by)
            ORDER BY p.until DESC, p.since) AS pauses
        FROM pause p
        WHERE j.state = 'available' AND p.until > now() AND (p.scope, p.tenant_id, p.key) IN (
            VALUES ('queue', '', j.queue), ('kind', '', j.kind), ('provider', '', j.provider),
                   ('tenant', '', j.tenant_id), ('group', '', j.group_key), ('group', j.tenant_id, j.group_key),
                   ('rate', j.tenant_id, j.group_key))
            AND (p.scope = 'kind' OR NOT is_internal_kind(j.kind))
    ) AS pause_list
    CROSS JOIN LATERAL (
        SELECT jsonb_agg(jsonb_build_object(
            'tenant_id', nullif(c.tenant_id, ''), 'group_key', nullif(c.group_key, ''),
            'max_running', c.max_running) ORDER BY c.group_key, c.tenant_id) AS caps
        FROM concurrency_cap c CROSS JOIN LATERAL (
            SELECT CASE
                WHEN c.tenant_id = '' THEN (SELECT count(*) FROM (
                    SELECT FROM job r
                    WHERE r.group_key = c.group_key AND r.group_key <> '' AND r.state = 'running'
                        AND NOT is_internal_kind(r.kind)
                    LIMIT c.max_running) AS counted_row)
                ELSE (SELECT count(*) FROM (
                    SELECT FROM job r
                    WHERE r.tenant_id = c.tenant_id AND r.state = 'running' AND NOT is_internal_kind(r.kind)
                        AND (c.group_key = '' OR r.group_key = c.group_key)
                    LIMIT c.max_running) AS counted_row)
                END AS running
        ) AS usage
        WHERE j.state = 'available' AND NOT is_internal_kind(j.kind) AND usage.running >= c.max_running
            AND (c.tenant_id, c.group_key) IN (
                VALUES (j.tenant_id, ''), ('', j.group_key), (j.tenant_id, j.group_key))
    ) AS cap_list
    LEFT JOIN LATERAL (
        SELECT d.dead_letter_id FROM dead_letter d WHERE d.job_id = j.job_id LIMIT 1
    ) AS entry ON j.state = 'discarded'
WHERE j.job_id = :job_id
