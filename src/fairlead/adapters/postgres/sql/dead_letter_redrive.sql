-- dead_letter_redrive: enqueue a replay of an open entry and count it; it closes when that job succeeds (R19).
-- Takes   dead_letter_id, last_at (as it was read; NULL: any), job_id, kind, tenant_id, queue, provider,
--         group_key, priority, delay_s, args, unique_key, expires_in_s, tags, notify, replayed_by (NULL:
--         fairlead itself)
-- Returns dead_letter_id; no row if the entry is of another tenant than the job, is closed, has a replay, was
--         reopened since, or if another open job has its unique key
-- Locks   the entry's row, a job that still has its key but will not run, and the new job's lane if it is not
--         ready
-- Needs   the primary key; job_unique_idx; lane_touch_for_tenant
WITH entry AS MATERIALIZED (
    SELECT dead_letter_id, job_id FROM dead_letter
    WHERE dead_letter_id = :dead_letter_id AND tenant_id = :tenant_id AND status = 'pending_review'
        AND replay_job_id IS NULL AND last_at = coalesce(:last_at::timestamptz, last_at)
    FOR UPDATE
),
released_key AS (
    UPDATE job SET unique_live = false
    WHERE job.unique_live AND job.job_id = ANY(ARRAY(
        -- a unique key that outlives its job must not block that job's replay, which inherits it
        SELECT own_job.job_id FROM job AS own_job JOIN entry USING (job_id) WHERE own_job.state = 'discarded'
        UNION ALL  -- nor must the key of a job that will not run
        SELECT key_holder.job_id FROM job AS key_holder CROSS JOIN entry
        WHERE key_holder.kind = :kind::text AND key_holder.tenant_id = :tenant_id::text
            AND key_holder.unique_key = :unique_key::text
            AND key_holder.unique_live AND key_holder.state <> 'running'
            AND NOT key_covers(key_holder.kind, key_holder.state, key_holder.expires_at, key_holder.unique_until, now())))
    RETURNING job.job_id, job.unique_until
),
replay AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, unique_key,
                     unique_live, unique_until, expires_at, tags, replay_of)
    SELECT :job_id::uuid, :kind::text, :tenant_id::text, :queue::text, :provider::text, :group_key::text,
           :priority::smallint, now() + :delay_s::float8 * interval '1 second', :args::jsonb, :unique_key::text,
           :unique_key::text IS NOT NULL, released_key.unique_until, now() + :expires_in_s::float8 * interval '1 second',
           :tags::text[], entry.dead_letter_id
    FROM entry LEFT JOIN released_key USING (job_id)
    WHERE (SELECT count(*) FROM released_key) >= 0  -- the key must leave the index first
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live DO NOTHING
    RETURNING job_id, queue, run_at, lane_id
),
lane_update AS MATERIALIZED (
    SELECT lane_touch_for_tenant(array_agg(lane_id), array_agg(run_at)) FROM replay HAVING count(*) > 0
),
notification AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', queue)) FROM replay WHERE :notify::boolean AND run_at <= now()
)
UPDATE dead_letter SET
    replays = replays + 1, replay_job_id = replay.job_id, action_due_at = NULL, replayed_by = :replayed_by::text
FROM replay CROSS JOIN entry CROSS JOIN notification LEFT JOIN lane_update ON true
WHERE dead_letter.dead_letter_id = entry.dead_letter_id
RETURNING dead_letter.dead_letter_id
