-- dead_letter_redrive: enqueue a replay of an open entry and count it; it closes when that job succeeds (R19).
-- Takes   dead_letter_id, last_at (as it was seen; NULL: whenever it died last), job_id, kind, tenant_id, queue, provider, group_key, priority, delay_s,
--         args, unique_key, expires_in_s, tags, notify, replayed_by (NULL: fairlead by itself)
-- Returns dead_letter_id, or no row if the entry is another tenant's than the job, is closed, is being replayed, has
--         died again, or its unique key is held by another open job
-- Locks   the entry's row, the job that has its key still and will not run, and the job's lane if that is not ready
-- Needs   the primary key; job_unique_idx; lane_touch_for_tenant
WITH entry AS MATERIALIZED (
    SELECT dead_letter_id, job_id FROM dead_letter
    WHERE dead_letter_id = :dead_letter_id AND tenant_id = :tenant_id AND status = 'pending_review'
        AND replay_job_id IS NULL AND last_at = coalesce(:last_at::timestamptz, last_at)
    FOR UPDATE
),
freed AS (
    UPDATE job SET unique_live = false
    WHERE job.unique_live AND job.job_id = ANY(ARRAY(
        -- a unique key that outlives its job must not keep out the job's own replay, which inherits it
        SELECT own.job_id FROM job AS own JOIN entry USING (job_id) WHERE own.state = 'discarded'
        UNION ALL  -- nor must that of a job that will not run
        SELECT last.job_id FROM job AS last CROSS JOIN entry
        WHERE last.kind = :kind::text AND last.tenant_id = :tenant_id::text AND last.unique_key = :unique_key::text
            AND last.unique_live AND last.state <> 'running'
            AND NOT key_covers(last.kind, last.state, last.expires_at, last.unique_until, now())))
    RETURNING job.job_id, job.unique_until
),
stored AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, unique_key,
                     unique_live, unique_until, expires_at, tags, replay_of)
    SELECT :job_id::uuid, :kind::text, :tenant_id::text, :queue::text, :provider::text, :group_key::text,
           :priority::smallint, now() + :delay_s::float8 * interval '1 second', :args::jsonb, :unique_key::text,
           :unique_key::text IS NOT NULL, freed.unique_until, now() + :expires_in_s::float8 * interval '1 second',
           :tags::text[], entry.dead_letter_id
    FROM entry LEFT JOIN freed USING (job_id)
    WHERE (SELECT count(*) FROM freed) >= 0  -- the key must be out of the index first
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live DO NOTHING
    RETURNING job_id, queue, run_at, lane_id
),
lanes AS MATERIALIZED (
    SELECT lane_touch_for_tenant(array_agg(lane_id), array_agg(run_at)) FROM stored HAVING count(*) > 0
),
told AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', queue)) FROM stored WHERE :notify::boolean AND run_at <= now()
)
UPDATE dead_letter SET
    replays = replays + 1, replay_job_id = stored.job_id, action_due_at = NULL, replayed_by = :replayed_by::text
FROM stored CROSS JOIN entry CROSS JOIN told LEFT JOIN lanes ON true
WHERE dead_letter.dead_letter_id = entry.dead_letter_id
RETURNING dead_letter.dead_letter_id
