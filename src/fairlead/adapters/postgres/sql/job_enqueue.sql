-- job_enqueue: store new jobs; a waiting job that holds the unique key is kept, and made as urgent. A holder that can no
-- longer do the work (begun, expired, its time over) hands the key on to the new job. While one runs, unique_while
-- decides: the new job waits for the end of the run (follow_up), may begin beside it (waiting), or is not stored (open).
-- Takes   arrays of one length: job_ids, kinds, tenant_ids, queues, providers, group_keys, priorities,
--         delays_s, args, unique_keys, unique_for_s (NULL: only while open), unique_while, expires_in_s, tags (JSON
--         lists), replay_of; and notify (notify workers of jobs that are due now, once per queue)
-- Returns asked_id, job_id, inserted, key_state (none, waiting, running, finished), for each requested job. Of jobs of one key
--         in one call, one is stored, by the choice that asks for most: waiting before follow_up before open
-- Locks   the new rows, the jobs with a key that is handed on, those made more urgent (none that is locked), and lanes
--         that are not ready; keys are taken in key order, so that two callers never wait for each other
-- Needs   job_unique_idx; key_covers, key_run_covers, key_running_job, key_holder_merge, key_state_of; follow_up_run_at and the trigger
--         job_release_follow_up; lane_touch; job ids that are new (a known one breaks the primary key: see job_present)
WITH input AS MATERIALIZED (
    SELECT i.*,
        first_value(i.job_id) OVER alike AS kept_id,
        now() + min(i.delay_s) OVER alike * interval '1 second' AS run_at,
        now() + nullif(max(coalesce(i.expires_in_s, 'infinity')) OVER alike,
            'infinity') * interval '1 second' AS expires_at,
        bool_or(i.unique_while = 'waiting') OVER alike AS beside,
        min(i.unique_while) OVER alike = 'open' AND max(i.unique_while) OVER alike = 'open' AS open
    FROM unnest(
        :job_ids::uuid[], :kinds::text[], :tenant_ids::text[], :queues::text[], :providers::text[],
        :group_keys::text[], :priorities::smallint[], :delays_s::float8[], :args::jsonb[],
        :unique_keys::text[], :unique_for_s::float8[], :unique_while::text[], :expires_in_s::float8[],
        :tags::jsonb[], :replay_of::uuid[])
    WITH ORDINALITY AS i (job_id, kind, tenant_id, queue, provider, group_key, priority, delay_s, args,
                          unique_key, unique_for_s, unique_while, expires_in_s, tags, replay_of, turn)
    WINDOW alike AS (
        PARTITION BY i.kind, i.tenant_id, i.unique_key, CASE WHEN i.unique_key IS NULL THEN i.job_id END
        ORDER BY i.priority, i.turn ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
),
keyed AS MATERIALIZED (
    SELECT input.job_id AS asked_id, input.kept_id, input.priority, input.run_at, input.expires_at, job.job_id, job.state,
        key_covers(job.kind, job.state, job.expires_at, job.unique_until, now())
            OR input.open AND key_run_covers('open', job.state, job.result) AS answers
    FROM input JOIN job
        ON job.kind = input.kind AND job.tenant_id = input.tenant_id AND job.unique_key = input.unique_key
        AND job.unique_live
),
held AS MATERIALIZED (
    SELECT asked_id, kept_id, priority, run_at, expires_at, job_id, state FROM keyed WHERE answers
    UNION ALL  -- a run that handed its key on before, to a job that is gone
    SELECT input.job_id, input.kept_id, input.priority, input.run_at, input.expires_at, run.job_id, 'running'
    FROM input CROSS JOIN LATERAL (
        SELECT key_running_job(input.kind, input.tenant_id, input.unique_key, true) AS job_id OFFSET 0) AS run
    WHERE input.open AND run.job_id IS NOT NULL
        AND NOT EXISTS (SELECT FROM keyed WHERE keyed.asked_id = input.job_id AND keyed.answers)
),
freed AS (
    UPDATE job SET unique_live = false
    FROM (SELECT DISTINCT job_id FROM keyed WHERE NOT answers ORDER BY job_id) AS key
    WHERE job.job_id = key.job_id AND job.unique_live
        AND NOT key_covers(job.kind, job.state, job.expires_at, job.unique_until, now())
    RETURNING job.job_id
),
raised AS (
    UPDATE job SET
        priority = wanted.priority, run_at = wanted.run_at, expires_at = wanted.expires_at,
        follow_at = CASE WHEN job.follow_at IS NOT NULL THEN least(job.follow_at, wanted.asked_at) END,
        lane_id = lane_id_of(job.queue, job.kind, job.provider, wanted.priority, job.tenant_id, job.group_key)
    FROM (
        SELECT waiting.job_id, held.run_at AS asked_at, a.*
        FROM held JOIN job AS waiting ON waiting.job_id = held.job_id
            CROSS JOIN key_holder_merge(waiting, held.priority, held.run_at, held.expires_at) AS a
        WHERE held.asked_id = held.kept_id AND waiting.state = 'available'
            AND ((waiting.priority, waiting.run_at, waiting.expires_at) IS DISTINCT
                FROM (a.priority, a.run_at, a.expires_at)
                OR waiting.follow_at > held.run_at)
        FOR NO KEY UPDATE OF waiting SKIP LOCKED  -- the transaction that locks it claims, cancels or hurries it
    ) AS wanted
    WHERE job.job_id = wanted.job_id
    RETURNING job.queue, job.lane_id, job.run_at, job.crash_count
),
stored AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, unique_key,
                     unique_live, unique_until, expires_at, tags, replay_of, lane_id, follow_at)
    SELECT input.job_id, input.kind, input.tenant_id, input.queue, input.provider, input.group_key,
           input.priority, CASE WHEN input.run_id IS NULL THEN input.run_at ELSE follow_up_run_at() END,
               input.args, input.unique_key,
           input.unique_key IS NOT NULL, now() + input.unique_for_s * interval '1 second', input.expires_at,
           ARRAY(SELECT jsonb_array_elements_text(input.tags)), input.replay_of,
           lane_id_of(input.queue, input.kind, input.provider, input.priority, input.tenant_id, input.group_key),
           CASE WHEN input.run_id IS NOT NULL THEN input.run_at END
    FROM (
        SELECT asked.*, CASE WHEN NOT asked.beside AND asked.unique_key IS NOT NULL
            THEN key_running_job(asked.kind, asked.tenant_id, asked.unique_key, false) END AS run_id
        FROM input AS asked
        WHERE asked.job_id = asked.kept_id
            AND NOT EXISTS (SELECT FROM held WHERE held.asked_id = asked.job_id)
            AND (SELECT count(*) FROM freed) >= 0  -- they must be out of the index first
        ORDER BY asked.kind, asked.tenant_id, asked.unique_key
    ) AS input
    -- reached only in a race: the key was taken after this statement began
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live
        DO UPDATE SET
            (priority, run_at, expires_at) = (
                SELECT a.* FROM key_holder_merge(
                    job, excluded.priority, coalesce(excluded.follow_at, excluded.run_at), excluded.expires_at) AS a),
            follow_at = CASE WHEN job.follow_at IS NOT NULL THEN
                least(job.follow_at, coalesce(excluded.follow_at, excluded.run_at)) END,
            lane_id = lane_id_of(job.queue, job.kind, job.provider, least(job.priority, excluded.priority),
                              job.tenant_id, job.group_key)
    RETURNING job.job_id, job.kind, job.tenant_id, job.unique_key, job.state, job.queue, job.run_at, job.lane_id,
        job.follow_at IS NOT NULL AS follows
),
come AS (
    SELECT queue, lane_id, run_at FROM stored UNION ALL SELECT queue, lane_id, run_at FROM raised WHERE crash_count = 0
),
lanes AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at))
    FROM (SELECT lane_id, min(run_at) AS run_at FROM come GROUP BY lane_id) AS once
    HAVING count(*) > 0
),
told AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', due.queue)) AS queues
    FROM (SELECT DISTINCT queue FROM come WHERE :notify::boolean AND run_at <= now()) AS due
)
SELECT
    input.job_id AS asked_id,
    CASE WHEN input.unique_key IS NULL THEN input.job_id ELSE coalesce(held.job_id, stored.job_id) END AS job_id,
    input.unique_key IS NULL OR (held.job_id IS NULL AND stored.job_id = input.job_id) AS inserted,
    CASE
        WHEN held.job_id IS NOT NULL THEN key_state_of(held.state)
        WHEN stored.job_id <> input.job_id THEN key_state_of(stored.state)  -- one of this call, or of another one just now
        WHEN stored.follows THEN 'running'
        WHEN input.beside AND key_running_job(input.kind, input.tenant_id, input.unique_key, false) IS NOT NULL
            THEN 'running'
        ELSE 'none'
    END AS key_state
FROM input
    CROSS JOIN told
    LEFT JOIN lanes ON true
    LEFT JOIN held ON held.asked_id = input.job_id
    LEFT JOIN stored ON stored.kind = input.kind AND stored.tenant_id = input.tenant_id
        AND stored.unique_key = input.unique_key
