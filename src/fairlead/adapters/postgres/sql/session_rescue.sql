-- session_rescue: one fleet-wide pass that declares silent sessions lost and gives their jobs back (R1-R4).
-- Takes   session_id (the caller's), every_s (the least time between passes), max_crashes, dead_letter_ids (as
--         many as jobs may be handled)
-- Returns one row: ready (false while a full lease of uninterrupted database time has not passed), sessions,
--         rescued, dead; no row if another process just did it, or the caller's session is not open
-- Locks   the row of maintenance_run, the sessions declared lost, the jobs handled; never waits for a job
-- Needs   job_running_since_idx; worker_session_open_idx; worker_session_ended_idx; dead_letter_store. A gap of half a lease
--         between passes, a restart, a fail-over or a jump of the server's clock begins the uninterrupted time anew: after
--         it every owner looks dead. A proven death (session_mark_dead) waits for no such time. What runs is walked along while
--         a process has ended within the last ten minutes, and else once a minute: under an old snapshot the index keeps
--         all that ever ran
WITH swept AS (
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
    RETURNING s.uninterrupted_since, coalesce(  -- the row's former value: this is the first pass of a minute
        date_trunc('minute', now()) <> (SELECT date_trunc('minute', last_at) FROM maintenance_run
            WHERE name = 'rescue'), true
    ) AS thorough
),
open AS MATERIALIZED (
    SELECT w.session_id, w.heartbeat_at NOT BETWEEN now() - w.lease AND now() + w.lease AS silent,
        swept.uninterrupted_since <= now() - w.lease AS sure
    FROM worker_session w CROSS JOIN swept
    WHERE w.lost_at IS NULL AND w.stopped_at IS NULL
),
lost AS (
    UPDATE worker_session w SET lost_at = now()
    FROM open
    WHERE w.session_id = open.session_id AND open.sure AND open.silent
        -- once more on the row as it is now: a heartbeat may have come since
        AND w.lost_at IS NULL AND w.stopped_at IS NULL
        AND w.heartbeat_at NOT BETWEEN now() - w.lease AND now() + w.lease
    RETURNING w.session_id
),
ended AS MATERIALIZED (
    SELECT swept.thorough OR EXISTS (SELECT FROM lost) OR EXISTS (
        SELECT FROM worker_session WHERE greatest(lost_at, stopped_at) > now() - interval '10 minutes') AS lately
    FROM swept
),
taken AS MATERIALIZED (
    SELECT held.job_id, held.crash_count, w.stopped_at IS NULL AND held.started_at IS NOT NULL AS crashed
    FROM (  -- one walk along what runs, however many processes have ended
        SELECT job_id, session_id, started_at, crash_count FROM job
        WHERE state = 'running' AND (SELECT lately FROM ended) AND session_id <> ALL(ARRAY(
            SELECT session_id FROM open WHERE session_id NOT IN (SELECT session_id FROM lost)))
        LIMIT cardinality(:dead_letter_ids::uuid[]) FOR UPDATE SKIP LOCKED
    ) AS held JOIN worker_session w USING (session_id)
    WHERE w.lost_at IS NOT NULL OR w.stopped_at IS NOT NULL OR w.session_id IN (SELECT session_id FROM lost)
),
judged AS MATERIALIZED (
    SELECT job_id, crashed, crash_count + crashed::integer AS crashes,
        crashed AND crash_count + 1 >= :max_crashes::integer AS dies,
        (:dead_letter_ids::uuid[])[row_number() OVER ()] AS dead_letter_id
    FROM taken
),
freed AS (
    UPDATE job SET
        state = 'available', attempt = greatest(attempt - 1, 0), crash_count = judged.crashes,
        lease_id = NULL, session_id = NULL, started_at = NULL,
        failures = CASE WHEN NOT judged.crashed THEN failures ELSE failures_append(failures, jsonb_build_object(
            'category', 'transient_server', 'code', 'crashed', 'attempt', attempt,
            'ran_s', extract(epoch FROM now() - started_at),
            'reason', 'its worker died or did not renew its lease in time; this counts as no attempt')) END
    FROM judged
    WHERE job.job_id = judged.job_id AND NOT judged.dies
    RETURNING job.queue, job.lane_id, job.run_at, job.crash_count
),
lanes AS MATERIALIZED (  -- of those that had not begun; a suspect is claimed by itself
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM freed WHERE crash_count = 0 HAVING count(*) > 0
),
dead AS (
    UPDATE job SET
        state = CASE WHEN result IS NULL THEN 'discarded' ELSE 'cancelled' END,
        finished_at = now(), crash_count = judged.crashes, lease_id = NULL, session_id = NULL,
        unique_live = coalesce(unique_until > now(), false),
        failures = failures_append(failures, jsonb_build_object(
            'category', 'transient_server', 'code', 'poison', 'attempt', attempt,
            'ran_s', extract(epoch FROM now() - started_at),
            'reason', format('its worker died or did not renew its lease in time, %s times', judged.crashes)))
    FROM judged
    WHERE job.job_id = judged.job_id AND judged.dies
    RETURNING job AS final, judged.dead_letter_id
),
buried AS (
    SELECT dead_letter_store(
        dead_letter_id, final, 'transient_server', 'poison', (final).failures -> -1 ->> 'reason', '{}', NULL, NULL,
        now())
    FROM dead
),
told AS (
    SELECT count(pg_notify('fairlead_job', queue)) FROM (SELECT DISTINCT queue FROM freed) AS q
)
SELECT
    NOT EXISTS (SELECT FROM open WHERE NOT open.sure) AS ready,
    (SELECT count(*) FROM lost) AS sessions,
    (SELECT count(*) FROM freed) AS rescued,
    (SELECT count(*) FROM buried) AS dead,
    told.count AS queues
FROM swept CROSS JOIN told LEFT JOIN lanes ON true
