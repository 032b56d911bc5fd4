-- schedule_run_take: take one run of a schedule: its record and its job, or nothing (R4).
-- Takes   name, seen (the last run as the caller knows it), run_at, coalesced, session_id, job_id, kind, tenant_id,
--         queue, priority, delay_s (from the run to the job, at the latest from now), args, unique_key, notify
-- Returns name, or no row if another process was faster, or the schedule is paused or gone
-- Locks   the schedule's row, a job that can no longer answer for its key, and the job's lane if that is not ready
-- Needs   the compare-and-set on last_run_at; the primary key of schedule_run is the proof that no run is taken twice. Where the
--         unique key is held by an open job the run is covered by that one: schedule_run.job_id is then NULL. One
--         that waits for its turn runs now instead. A run that was taken before the clock was set back is passed over
WITH moved AS (
    UPDATE schedule SET last_run_at = :run_at::timestamptz
    WHERE name = :name::text AND last_run_at = :seen::timestamptz AND NOT paused AND pause_at IS NULL
    RETURNING name
),
fresh AS MATERIALIZED (
    SELECT name FROM moved WHERE NOT EXISTS (SELECT FROM schedule_run WHERE schedule = :name::text
        AND run_at = :run_at::timestamptz)
),
hurried AS (
    UPDATE job SET run_at = now()
    FROM fresh
    WHERE job.kind = :kind::text AND job.tenant_id = :tenant_id::text AND job.unique_key = :unique_key::text
        AND job.unique_live AND job.state = 'available' AND job.run_at > now()
        AND job.attempt = 0 AND job.settled_lease_id IS NULL AND job.follow_at IS NULL  -- never begun, and follows no run
    RETURNING job.queue, job.run_at, job.lane_id
),
lapsed AS (  -- it will not run, so the key is free
    UPDATE job SET unique_live = false
    FROM fresh
    WHERE job.kind = :kind::text AND job.tenant_id = :tenant_id::text AND job.unique_key = :unique_key::text
        AND job.unique_live AND job.state <> 'running'
        AND NOT key_covers(job.kind, job.state, job.expires_at, job.unique_until, now())
    RETURNING job.job_id
),
stored AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, priority, run_at, args, unique_key, unique_live)
    SELECT :job_id::uuid, :kind::text, :tenant_id::text, :queue::text, :priority::smallint,
           greatest(now(), least(now(), :run_at::timestamptz) + :delay_s::float8 * interval '1 second'),
           :args::jsonb, :unique_key::text, :unique_key::text IS NOT NULL
    FROM fresh
    WHERE (SELECT count(*) FROM lapsed) >= 0  -- it must be out of the index first
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live DO NOTHING
    RETURNING job_id, queue, run_at, lane_id
),
ready AS (SELECT queue, run_at, lane_id FROM stored UNION ALL SELECT queue, run_at, lane_id FROM hurried),
lanes AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM ready HAVING count(*) > 0
),
told AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', queue)) FROM ready WHERE :notify::boolean AND run_at <= now()
),
noted AS (
    INSERT INTO schedule_run (schedule, run_at, session_id, coalesced, job_id)
    SELECT fresh.name, :run_at::timestamptz, :session_id::uuid, :coalesced::integer, stored.job_id FROM fresh
        LEFT JOIN stored ON true
)
SELECT moved.name, told.count FROM moved CROSS JOIN told LEFT JOIN lanes ON true
