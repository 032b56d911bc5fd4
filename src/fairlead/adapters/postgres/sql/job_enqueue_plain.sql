-- job_enqueue_plain: store new jobs without unique keys, 500 in 25 ms, 50 by job_enqueue; else nothing differs.
-- Takes   arrays: job_ids, tenant_ids, args, lane_ids (as the function lane_of has them); and of the same length, or
--         of one element that holds for all: kinds, queues, providers, group_keys, priorities, delays_s,
--         expires_in_s, tags (JSON lists), replay_of. And notify (tell listening workers about what is due now);
--         touch (false: a later statement of the transaction does it)
-- Gives   one row: stored
-- Locks   the new rows, and lanes that are not ready
-- Needs   lane_is_open, lane_touch; job ids that are new (a known one breaks the primary key: see job_present)
WITH alike AS MATERIALIZED (
    SELECT cardinality(:kinds::text[]) = 1 AS kind, cardinality(:queues::text[]) = 1 AS queue,
        cardinality(:providers::text[]) = 1 AS provider, cardinality(:group_keys::text[]) = 1 AS group_key,
        cardinality(:priorities::smallint[]) = 1 AS priority, cardinality(:delays_s::float8[]) = 1 AS delay,
        cardinality(:expires_in_s::float8[]) = 1 AS expires, cardinality(:tags::jsonb[]) = 1 AS tags,
        cardinality(:replay_of::uuid[]) = 1 AS replay_of
),
stored AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, expires_at, tags,
                     replay_of, lane_id)
    SELECT i.job_id,
        CASE WHEN alike.kind THEN (:kinds::text[])[1] ELSE i.kind END, i.tenant_id,
        CASE WHEN alike.queue THEN (:queues::text[])[1] ELSE i.queue END,
        CASE WHEN alike.provider THEN (:providers::text[])[1] ELSE i.provider END,
        CASE WHEN alike.group_key THEN (:group_keys::text[])[1] ELSE i.group_key END,
        CASE WHEN alike.priority THEN (:priorities::smallint[])[1] ELSE i.priority END,
        now() + CASE WHEN alike.delay THEN (:delays_s::float8[])[1] ELSE i.delay_s END * interval '1 second', i.args,
        now() + CASE WHEN alike.expires THEN (:expires_in_s::float8[])[1] ELSE i.expires_in_s END * interval '1 second',
        coalesce(ARRAY(SELECT jsonb_array_elements_text(
            CASE WHEN alike.tags THEN (:tags::jsonb[])[1] ELSE i.tags END)), '{}'),
        CASE WHEN alike.replay_of THEN (:replay_of::uuid[])[1] ELSE i.replay_of END, i.lane_id
    FROM alike, unnest(
        :job_ids::uuid[], :tenant_ids::text[], :args::jsonb[], :lane_ids::uuid[], :kinds::text[], :queues::text[],
        :providers::text[], :group_keys::text[], :priorities::smallint[], :delays_s::float8[],
        :expires_in_s::float8[], :tags::jsonb[], :replay_of::uuid[])
    AS i (job_id, tenant_id, args, lane_id, kind, queue, provider, group_key, priority, delay_s, expires_in_s, tags,
          replay_of)
    RETURNING job.queue, job.lane_id, job.run_at
),
come AS MATERIALIZED (SELECT queue, lane_id, min(run_at) AS run_at FROM stored GROUP BY queue, lane_id),
waiting AS MATERIALIZED (  -- most lanes are ready, and need nothing
    SELECT lane_id, run_at FROM come WHERE :touch::boolean AND NOT lane_is_open(lane_id, run_at)
),
lanes AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM waiting HAVING count(*) > 0
),
told AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', due.queue)) AS queues
    FROM (SELECT DISTINCT queue FROM come WHERE :notify::boolean AND run_at <= now()) AS due
)
SELECT (SELECT count(*) FROM stored) AS stored, told.queues FROM told LEFT JOIN lanes ON true
