-- job_enqueue: store new jobs. A waiting job with the unique key is kept, and made as urgent; a holder that
-- cannot do the work any more (begun, or expired) passes its key on to the new job. While a holder runs,
-- unique_while decides: the new job waits for the end of the run (follow_up), may run beside it (waiting), or
-- is not stored (open).
-- Takes   arrays of one length: job_ids, kinds, tenant_ids, queues, providers, group_keys, priorities,
--         delays_s, args, unique_keys, unique_for_s (NULL: only while open), unique_while, expires_in_s, tags
--         (JSON lists), replay_of; and notify (notify workers of jobs that are due now, once per queue)
-- Returns asked_id, job_id, inserted, key_state (none, waiting, running, finished), for each requested job. Of
--         the jobs of one key in a call one is stored, with the choice that stores most: waiting before
--         follow_up before open
-- Locks   the new rows, the jobs that pass a key on, those made more urgent (if no other transaction locks
--         them), and lanes that are not ready. Keys are taken in key order, so that two callers never deadlock
-- Needs   job_unique_idx; key_covers, key_run_covers, key_running_job, key_holder_merge, key_state_of;
--         follow_up_run_at and the trigger job_release_follow_up; lane_touch; new job ids (a known one breaks
--         the primary key: see job_present)
WITH input AS MATERIALIZED (
    SELECT i.*,
        first_value(i.job_id) OVER same_key AS kept_id,
        now() + min(i.delay_s) OVER same_key * interval '1 second' AS run_at,
        now() + nullif(max(coalesce(i.expires_in_s, 'infinity')) OVER same_key,
            'infinity') * interval '1 second' AS expires_at,
        bool_or(i.unique_while = 'waiting') OVER same_key AS may_run_beside,
        min(i.unique_while) OVER same_key = 'open' AND max(i.unique_while) OVER same_key = 'open' AS while_open
    FROM unnest(
        :job_ids::uuid[], :kinds::text[], :tenant_ids::text[], :queues::text[], :providers::text[],
        :group_keys::text[], :priorities::smallint[], :delays_s::float8[], :args::jsonb[],
        :unique_keys::text[], :unique_for_s::float8[], :unique_while::text[], :expires_in_s::float8[],
        :tags::jsonb[], :replay_of::uuid[])
    WITH ORDINALITY AS i (job_id, kind, tenant_id, queue, provider, group_key, priority, delay_s, args,
                          unique_key, unique_for_s, unique_while, expires_in_s, tags, replay_of, ord)
    WINDOW same_key AS (
        PARTITION BY i.kind, i.tenant_id, i.unique_key, CASE WHEN i.unique_key IS NULL THEN i.job_id END
        ORDER BY i.priority, i.ord ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
),
key_holder AS MATERIALIZED (
    SELECT input.job_id AS asked_id, input.kept_id, input.priority, input.run_at, input.expires_at, job.job_id, job.state,
        key_covers(job.kind, job.state, job.expires_at, job.unique_until, now())
            OR input.while_open AND key_run_covers('open', job.state, job.result) AS is_covering
    FROM input JOIN job
        ON job.kind = input.kind AND job.tenant_id = input.tenant_id AND job.unique_key = input.unique_key
        AND job.unique_live
),
cover AS MATERIALIZED (
    SELECT asked_id, kept_id, priority, run_at, expires_at, job_id, state FROM key_holder WHERE is_covering
    UNION ALL  -- a run that passed its key to a job that no longer exists
    SELECT input.job_id, input.kept_id, input.priority, input.run_at, input.expires_at, run.job_id, 'running'
    FROM input CROSS JOIN LATERAL (
        SELECT key_running_job(input.kind, input.tenant_id, input.unique_key, true) AS job_id OFFSET 0) AS run
    WHERE input.while_open AND run.job_id IS NOT NULL
        AND NOT EXISTS (SELECT FROM key_holder WHERE key_holder.asked_id = input.job_id AND key_holder.is_covering)
),
released_key AS (
    UPDATE job SET unique_live = false
    FROM (SELECT DISTINCT job_id FROM key_holder WHERE NOT is_covering ORDER BY job_id) AS key
    WHERE job.job_id = key.job_id AND job.unique_live
        AND NOT key_covers(job.kind, job.state, job.expires_at, job.unique_until, now())
    RETURNING job.job_id
),
raised_holder AS (
    UPDATE job SET
        priority = merge.priority, run_at = merge.run_at, expires_at = merge.expires_at,
        follow_at = CASE WHEN job.follow_at IS NOT NULL THEN least(job.follow_at, merge.asked_at) END,
        lane_id = lane_id_of(job.queue, job.kind, job.provider, merge.priority, job.tenant_id, job.group_key)
    FROM (
        SELECT holder.job_id, cover.run_at AS asked_at, merged_values.*
        FROM cover JOIN job AS holder ON holder.job_id = cover.job_id
            CROSS JOIN key_holder_merge(holder, cover.priority, cover.run_at, cover.expires_at) AS merged_values
        WHERE cover.asked_id = cover.kept_id AND holder.state = 'available'
            AND ((holder.priority, holder.run_at, holder.expires_at) IS DISTINCT
                FROM (merged_values.priority, merged_values.run_at, merged_values.expires_at)
                OR holder.follow_at > cover.run_at)
        FOR NO KEY UPDATE OF holder SKIP LOCKED  -- a transaction that locks it claims it, cancels it or raises its priority
    ) AS merge
    WHERE job.job_id = merge.job_id
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
        SELECT candidate.*, CASE WHEN NOT candidate.may_run_beside AND candidate.unique_key IS NOT NULL
            THEN key_running_job(candidate.kind, candidate.tenant_id, candidate.unique_key, false) END AS run_id
        FROM input AS candidate
        WHERE candidate.job_id = candidate.kept_id
            AND NOT EXISTS (SELECT FROM cover WHERE cover.asked_id = candidate.job_id)
            AND (SELECT count(*) FROM released_key) >= 0  -- their keys must leave the index first
        ORDER BY candidate.kind, candidate.tenant_id, candidate.unique_key
    ) AS input
    -- happens only in a race, if the key was taken after this statement began
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live
        DO UPDATE SET
            (priority, run_at, expires_at) = (
                SELECT merged_values.* FROM key_holder_merge(
                    job, excluded.priority, coalesce(excluded.follow_at, excluded.run_at),
                        excluded.expires_at) AS merged_values),
            follow_at = CASE WHEN job.follow_at IS NOT NULL THEN
                least(job.follow_at, coalesce(excluded.follow_at, excluded.run_at)) END,
            lane_id = lane_id_of(job.queue, job.kind, job.provider, least(job.priority, excluded.priority),
                              job.tenant_id, job.group_key)
    RETURNING job.job_id, job.kind, job.tenant_id, job.unique_key, job.state, job.queue, job.run_at, job.lane_id,
        job.follow_at IS NOT NULL AS follows
),
lane_job AS (
    SELECT queue, lane_id, run_at FROM stored UNION ALL SELECT queue, lane_id, run_at FROM raised_holder
        WHERE crash_count = 0
),
lane_update AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at))
    FROM (SELECT lane_id, min(run_at) AS run_at FROM lane_job GROUP BY lane_id) AS lane_job
    HAVING count(*) > 0
),
notification AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', due.queue)) AS queues
    FROM (SELECT DISTINCT queue FROM lane_job WHERE :notify::boolean AND run_at <= now()) AS due
)
SELECT
    input.job_id AS asked_id,
    CASE WHEN input.unique_key IS NULL THEN input.job_id ELSE coalesce(cover.job_id, stored.job_id) END AS job_id,
    input.unique_key IS NULL OR (cover.job_id IS NULL AND stored.job_id = input.job_id) AS inserted,
    CASE
        WHEN cover.job_id IS NOT NULL THEN key_state_of(cover.state)
        WHEN stored.job_id <> input.job_id THEN key_state_of(stored.state)  -- a job of this call, or of a concurrent one
        WHEN stored.follows THEN 'running'
        WHEN input.may_run_beside AND key_running_job(input.kind, input.tenant_id, input.unique_key, false) IS NOT NULL
            THEN 'running'
        ELSE 'none'
    END AS key_state
FROM input
    CROSS JOIN notification
    LEFT JOIN lane_update ON true
    LEFT JOIN cover ON cover.asked_id = input.job_id
    LEFT JOIN stored ON stored.kind = input.kind AND stored.tenant_id = input.tenant_id
        AND stored.unique_key = input.unique_key
