-- job_enqueue_plain: store new jobs without unique keys. 500 take 25 ms instead of the 50 ms of job_enqueue;
-- deleting it changes only speed.
-- Takes   arrays of one length: job_ids, tenant_ids, args, lane_ids (as the function lane_id_of computes them),
--         kinds, queues, providers, group_keys, priorities, delays_s, expires_in_s, tags (JSON lists),
--         replay_of; and notify (notify workers of jobs that are due now), touch (false: a later statement of
--         the transaction does it)
-- Returns one row: stored
-- Locks   the new rows, and lanes that are not ready
-- Needs   lane_is_open, lane_touch; new job ids (a known one breaks the primary key: see job_present)
WITH stored AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, expires_at, tags,
                     replay_of, lane_id)
    SELECT i.job_id, i.kind, i.tenant_id, i.queue, i.provider, i.group_key, i.priority,
        now() + i.delay_s * interval '1 second', i.args, now() + i.expires_in_s * interval '1 second',
        ARRAY(SELECT jsonb_array_elements_text(i.tags)), i.replay_of, i.lane_id
    FROM unnest(
        :job_ids::uuid[], :kinds::text[], :tenant_ids::text[], :queues::text[], :providers::text[],
        :group_keys::text[], :priorities::smallint[], :delays_s::float8[], :args::jsonb[], :expires_in_s::float8[],
        :tags::jsonb[], :replay_of::uuid[], :lane_ids::uuid[])
    AS i (job_id, kind, tenant_id, queue, provider, group_key, priority, delay_s, args, expires_in_s, tags, replay_of,
          lane_id)
    RETURNING job.queue, job.lane_id, job.run_at
),
lane_job AS MATERIALIZED (SELECT queue, lane_id, min(run_at) AS run_at FROM stored GROUP BY queue, lane_id),
outdated_lane AS MATERIALIZED (  -- most lanes are ready, and stay as they are
    SELECT lane_id, run_at FROM lane_job WHERE :touch::boolean AND NOT lane_is_open(lane_id, run_at)
),
lane_update AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM outdated_lane HAVING count(*) > 0
),
notification AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', due.queue)) AS queues
    FROM (SELECT DISTINCT queue FROM lane_job WHERE :notify::boolean AND run_at <= now()) AS due
)
SELECT (SELECT count(*) FROM stored) AS stored, notification.queues FROM notification LEFT JOIN lane_update ON true
