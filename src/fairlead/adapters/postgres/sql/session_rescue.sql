-- session_rescue: declare silent sessions lost and make their jobs available again, in one pass for the whole
-- fleet (R1-R4).
-- Takes   session_id (the caller's), every_s (the least time between passes), max_crashes, dead_letter_ids (one
--         for each job that the pass may handle)
-- Returns one row: ready (false until the database has been available without a gap for a full lease),
--         sessions, rescued, dead; no row if another process did a pass recently, or if the caller's session is
--         not open
-- Locks   the row of maintenance_run, the sessions declared lost, the jobs handled; never waits for a job
-- Needs   job_running_since_idx; worker_session_open_idx; worker_session_ended_idx; dead_letter_store. A gap of
--         half a lease between passes, a restart, a fail-over or a jump of the server's clock restarts the
--         uninterrupted time, because after it every owner looks dead. A proven death (session_mark_dead) does
--         not wait for that time. Running jobs are scanned while a process has ended within the last ten
--         minutes, otherwise once a minute, because under an old snapshot the index still holds all jobs that
--         ever ran
WITH pass AS (
    INSERT INTO maintenance_run AS s (name, session_id, last_at)
    SELECT 'rescue', session_id, now() FROM worker_session
    WHERE session_id = :session_id::uuid AND lost_at IS NULL AND stopped_at IS NULL
    ON CONFLICT (name) DO UPDATE SET
        session_id = excluded.session_id, last_at = now(), server_started_at = excluded.server_started_at,
        uninterrupted_since = CASE
            WHEN abs(extract(epoch FROM now() - s.last_at)) <= (
                    SELECT extract(epoch FROM lease) / 2 FROM worker_session WHERE session_id = :session_id::uuid)
                AND s.server_started_at = excluded.server_started_at
            THEN s.uninterrupted_since ELSE now() END
    WHERE s.last_at <= now() - :every_s::float8 * interval '1 second'
        OR s.last_at > now() + interval '1 minute'  -- the clock was set back
    RETURNING s.uninterrupted_since, coalesce(  -- the row's former value, which shows the first pass of a minute
        date_trunc('minute', now()) <> (SELECT date_trunc('minute', last_at) FROM maintenance_run
            WHERE name = 'rescue'), true
    ) AS thorough
),
open_session AS MATERIALIZED (
    SELECT w.session_id, w.heartbeat_at NOT BETWEEN now() - w.lease AND now() + w.lease AS silent,
        pass.uninterrupted_since <= now() - w.lease AS is_certain
    FROM worker_session w CROSS JOIN pass
    WHERE w.lost_at IS NULL AND w.stopped_at IS NULL
),
lost_session AS (
    UPDATE worker_session w SET lost_at = now()
    FROM open_session
    WHERE w.session_id = open_session.session_id AND open_session.is_certain AND open_session.silent
        -- checked again on the current row, because a heartbeat may have come since
        AND w.lost_at IS NULL AND w.stopped_at IS NULL
        AND w.heartbeat_at NOT BETWEEN now() - w.lease AND now() + w.lease
    RETURNING w.session_id
),
recent_end AS MATERIALIZED (
    SELECT pass.thorough OR EXISTS (SELECT FROM lost_session) OR EXISTS (
        SELECT FROM worker_session WHERE greatest(lost_at, stopped_at) > now() - interval '10 minutes') AS is_recent
    FROM pass
),
orphaned_job AS MATERIALIZED (
    SELECT running_job.job_id, running_job.crash_count, w.stopped_at IS NULL
        AND running_job.started_at IS NOT NULL AS crashed
    FROM (  -- one scan of the running jobs, however many processes have ended
        SELECT job_id, session_id, started_at, crash_count FROM job
        WHERE state = 'running' AND (SELECT is_recent FROM recent_end) AND session_id <> ALL(ARRAY(
            SELECT session_id FROM open_session WHERE session_id NOT IN (SELECT session_id FROM lost_session)))
        LIMIT cardinality(:dead_letter_ids::uuid[]) FOR UPDATE SKIP LOCKED
    ) AS running_job JOIN worker_session w USING (session_id)
    WHERE w.lost_at IS NOT NULL OR w.stopped_at IS NOT NULL OR w.session_id IN (SELECT session_id FROM lost_session)
),
verdict AS MATERIALIZED (
    SELECT job_id, crashed, crash_count + crashed::integer AS crash_total,
        crashed AND crash_count + 1 >= :max_crashes::integer AS is_poison,
        (:dead_letter_ids::uuid[])[row_number() OVER ()] AS dead_letter_id
    FROM orphaned_job
),
released_job AS (
    UPDATE job SET
        state = 'available', attempt = greatest(attempt - 1, 0), crash_count = verdict.crash_total,
        lease_id = NULL, session_id = NULL, started_at = NULL,
        failures = CASE WHEN NOT verdict.crashed THEN failures ELSE failures_append(failures, jsonb_build_object(
            'category', 'transient_server', 'code', 'crashed', 'attempt', attempt,
            'ran_s', extract(epoch FROM now() - started_at),
            'reason', 'its worker died or did not renew its lease in time; this counts as no attempt')) END
    FROM verdict
    WHERE job.job_id = verdict.job_id AND NOT verdict.is_poison
    RETURNING job.queue, job.lane_id, job.run_at, job.crash_count
),
lane_update AS MATERIALIZED (  -- only for jobs that had not begun; suspects are claimed separately
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM released_job WHERE crash_count = 0 HAVING count(*) > 0
),
final_row AS (
    UPDATE job SET
        state = CASE WHEN result IS NULL THEN 'discarded' ELSE 'cancelled' END,
        finished_at = now(), crash_count = verdict.crash_total, lease_id = NULL, session_id = NULL,
        unique_live = coalesce(unique_until > now(), false),
        failures = failures_append(failures, jsonb_build_object(
            'category', 'transient_server', 'code', 'poison', 'attempt', attempt,
            'ran_s', extract(epoch FROM now() - started_at),
            'reason', format('its worker died or did not renew its lease in time, %s times', verdict.crash_total)))
    FROM verdict
    WHERE job.job_id = verdict.job_id AND verdict.is_poison
    RETURNING job AS final, verdict.dead_letter_id
),
dead_letter_write AS (
    SELECT dead_letter_store(
        dead_letter_id, final, 'transient_server', 'poison', (final).failures -> -1 ->> 'reason', '{}', NULL, NULL,
        now())
    FROM final_row
),
notification AS (
    SELECT count(pg_notify('fairlead_job', queue)) FROM (SELECT DISTINCT queue FROM released_job) AS q
)
SELECT
    NOT EXISTS (SELECT FROM open_session WHERE NOT open_session.is_certain) AS ready,
    (SELECT count(*) FROM lost_session) AS sessions,
    (SELECT count(*) FROM released_job) AS rescued,
    (SELECT count(*) FROM dead_letter_write) AS dead,
    notification.count AS queues
FROM pass CROSS JOIN notification LEFT JOIN lane_update ON true
