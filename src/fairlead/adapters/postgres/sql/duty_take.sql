-- duty_take: take one tick of a schedule: its record and its job, or nothing (R4).
-- Takes   name, seen (the last tick as the caller knows it), tick, coalesced, session_id, job_id, kind, tenant_id,
--         queue, priority, args, unique_key, notify
-- Gives   name, or no row if another process was faster, or the schedule is paused or gone
-- Locks   the schedule's row
-- Needs   the compare-and-set on last_tick; duty's primary key is the proof that no tick is taken twice. Where the
--         unique key is held by an open job the tick is covered by that one: duty.job_id is then NULL
WITH moved AS (
    UPDATE schedule SET last_tick = :tick::timestamptz
    WHERE name = :name::text AND last_tick = :seen::timestamptz AND NOT paused
    RETURNING name
),
stored AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, priority, args, unique_key, unique_live)
    SELECT :job_id::uuid, :kind::text, :tenant_id::text, :queue::text, :priority::smallint, :args::jsonb,
           :unique_key::text, :unique_key::text IS NOT NULL
    FROM moved
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live DO NOTHING
    RETURNING job_id, queue
),
told AS MATERIALIZED (
    SELECT count(pg_notify('fairlead_job', queue)) FROM stored WHERE :notify::boolean
),
noted AS (
    INSERT INTO duty (schedule, tick, session_id, coalesced, job_id)
    SELECT moved.name, :tick::timestamptz, :session_id::uuid, :coalesced::integer, stored.job_id FROM moved LEFT JOIN stored ON true
)
SELECT moved.name, told.count FROM moved CROSS JOIN told
