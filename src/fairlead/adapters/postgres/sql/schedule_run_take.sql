-- schedule_run_take: take one run of a schedule: store both its record and its job, or neither (R4).
-- Takes   name, seen (the last run that the caller knows), run_at, coalesced, session_id, job_id, kind,
--         tenant_id, queue, priority, delay_s (of the job after the run, but never longer from now), args,
--         unique_key, notify
-- Returns name; no row if another process was faster, or if the schedule is paused or deleted
-- Locks   the schedule's row, a job that has the unique key but cannot cover the run any more, and the job's
--         lane if it is not ready
-- Needs   the compare-and-set on last_run_at; the primary key of schedule_run, by which no run is taken twice.
--         If an open job has the unique key, it covers the run, and schedule_run.job_id is NULL; if that job
--         waits for its time, it becomes due now. A run that was taken before the clock was set back is skipped
WITH due_schedule AS (
    UPDATE schedule SET last_run_at = :run_at::timestamptz
    WHERE name = :name::text AND last_run_at = :seen::timestamptz AND NOT paused AND pause_at IS NULL
    RETURNING name
),
new_run AS MATERIALIZED (
    SELECT name FROM due_schedule WHERE NOT EXISTS (SELECT FROM schedule_run WHERE schedule = :name::text
        AND run_at = :run_at::timestamptz)
),
due_job AS (
    UPDATE job SET run_at = now()
    FROM new_run
    WHERE job.kind = :kind::text AND job.tenant_id = :tenant_id::text AND job.unique_key = :unique_key::text
        AND job.unique_live AND job.state = 'available' AND job.run_at > now()
        -- it has never begun, and follows no run
        AND job.attempt = 0 AND job.settled_lease_id IS NULL AND job.follow_at IS NULL
    RETURNING job.queue, job.run_at, job.lane_id
),
released_key AS (  -- that job will not run, so its key is released
    UPDATE job SET unique_live = false
    FROM new_run
    WHERE job.kind = :kind::text AND job.tenant_id = :tenant_id::text AND job.unique_key = :unique_key::text
        AND job.unique_live AND job.state <> 'running'
        AND NOT key_covers(job.kind, job.state, job.expires_at, job.unique_until, now())
    RETURNING job.job_id
),
new_job AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, priority, run_at, args, unique_key, unique_live)
    SELECT :job_id::uuid, :kind::text, :tenant_id::text, :queue::text, :priority::smallint,
           greatest(now(), least(now(), :run_at::timestamptz) + :delay_s::float8 * interval '1 second'),
           :args::jsonb, :unique_key::text, :unique_key::text IS NOT NULL
    FROM new_run
    WHERE (SELECT count(*) FROM released_key) >= 0  -- the key must leave the index first
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live DO NOTHING
    RETURNING job_id, queue, run_at, lane_id
),
lane_job AS (SELECT queue, run_at, lane_id FROM new_job UNION ALL SELECT queue, run_at, lane_id FROM due_job),
lane_update AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM lane_job HAVING count(*) > 0
),
notification AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', queue)) FROM lane_job WHERE :notify::boolean AND run_at <= now()
),
run_record AS (
    INSERT INTO schedule_run (schedule, run_at, session_id, coalesced, job_id)
    SELECT new_run.name, :run_at::timestamptz, :session_id::uuid, :coalesced::integer, new_job.job_id FROM new_run
        LEFT JOIN new_job ON true
)
SELECT due_schedule.name, notification.count FROM due_schedule CROSS JOIN notification LEFT JOIN lane_update ON true
