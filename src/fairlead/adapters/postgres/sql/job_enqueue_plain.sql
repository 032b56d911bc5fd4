-- job_enqueue_plain: store new jobs without unique keys; else like job_enqueue, which costs three times as much.
-- Takes   arrays of one length: job_ids, kinds, tenant_ids, queues, providers, group_keys, priorities, delays_s,
--         args, expires_in_s, tags (JSON lists), replay_of; and notify (tell listening workers about what is due now)
-- Gives   one row: stored
-- Locks   the new rows, and lanes that are not ready
-- Needs   lane_find_idx, lane_touch; job ids that are new (a known one breaks the primary key: see job_present)
WITH stored AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, expires_at, tags,
                     replay_of, lane_id)
    SELECT i.job_id, i.kind, i.tenant_id, i.queue, i.provider, i.group_key, i.priority,
        now() + i.delay_s * interval '1 second', i.args, now() + i.expires_in_s * interval '1 second',
        CASE WHEN i.tags IS NULL THEN '{}' ELSE ARRAY(SELECT jsonb_array_elements_text(i.tags)) END, i.replay_of,
        lane_of(i.queue, i.kind, i.provider, i.priority, i.tenant_id, i.group_key)
    FROM unnest(
        :job_ids::uuid[], :kinds::text[], :tenant_ids::text[], :queues::text[], :providers::text[],
        :group_keys::text[], :priorities::smallint[], :delays_s::float8[], :args::jsonb[],
        :expires_in_s::float8[], :tags::jsonb[], :replay_of::uuid[])
    AS i (job_id, kind, tenant_id, queue, provider, group_key, priority, delay_s, args, expires_in_s, tags, replay_of)
    RETURNING job.queue, job.lane_id, job.run_at
),
come AS MATERIALIZED (SELECT queue, lane_id, min(run_at) AS run_at FROM stored GROUP BY queue, lane_id),
waiting AS MATERIALIZED (  -- most lanes are ready, and need nothing
    SELECT come.lane_id, come.run_at
    FROM come LEFT JOIN LATERAL (
        SELECT l.state, l.mark_at FROM lane l WHERE l.lane_id = come.lane_id ORDER BY l.vtime DESC LIMIT 1
    ) AS lane ON true
    WHERE (lane.state = 'ready' AND lane.mark_at < come.run_at) IS NOT TRUE
),
lanes AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM waiting HAVING count(*) > 0
),
told AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', due.queue)) AS queues
    FROM (SELECT DISTINCT queue FROM come WHERE :notify::boolean AND run_at <= now()) AS due
)
SELECT (SELECT count(*) FROM stored) AS stored, told.queues FROM told LEFT JOIN lanes ON true
