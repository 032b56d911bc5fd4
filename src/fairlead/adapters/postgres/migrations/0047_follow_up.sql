-- 0047_follow_up: a job that takes over the unique key of one that runs begins once that run has ended (R53).
-- Phase   pre (the version before it stores such jobs without the column: they begin at once, as they did)
-- Needs   0035_unique_keys, 0041_own_search_path

-- When the job is to run once the run that it follows has ended; NULL: it follows none. Until then run_at lies beyond
-- every delay, so that nothing that looks for due work has to know of it.
ALTER TABLE job ADD COLUMN follow_at timestamptz;

CREATE FUNCTION follow_later() RETURNS timestamptz LANGUAGE sql STABLE
RETURN now() + interval '400 days';

-- A run that has handed its unique key on ends, whichever way: it is done, fails, is cancelled, handed back, or its
-- process died. Whoever took the key had locked the row of the run, so its job is visible here. It takes its turn.
CREATE FUNCTION job_run_ended() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE freed record;
BEGIN
    UPDATE job SET run_at = follow_at, follow_at = NULL
    WHERE kind = OLD.kind AND tenant_id = OLD.tenant_id AND unique_key = OLD.unique_key AND unique_live
        AND state = 'available' AND follow_at IS NOT NULL
    RETURNING lane_id, run_at, queue INTO freed;
    IF FOUND THEN
        INSERT INTO lane_wake (lane_id, due_at) VALUES (freed.lane_id, freed.run_at);
        PERFORM pg_notify('fairlead_job', freed.queue);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_run_ended AFTER UPDATE OF state ON job FOR EACH ROW
    WHEN (OLD.state = 'running' AND NEW.state <> 'running' AND OLD.unique_key IS NOT NULL AND NOT OLD.unique_live)
    EXECUTE FUNCTION job_run_ended();

-- As in 0035; a job that follows a run keeps waiting for its end.
CREATE OR REPLACE FUNCTION key_answered(holder job, priority smallint, run_at timestamptz, expires_at timestamptz)
RETURNS TABLE (priority smallint, run_at timestamptz, expires_at timestamptz)
LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT least(holder.priority, $2),
        CASE WHEN holder.attempt > 0 OR holder.settled_lease_id IS NOT NULL OR holder.follow_at IS NOT NULL
             THEN holder.run_at ELSE least(holder.run_at, $3) END,
        CASE WHEN holder.state <> 'available' THEN holder.expires_at
             ELSE nullif(greatest(coalesce(holder.expires_at, 'infinity'), coalesce($4, 'infinity')), 'infinity') END;
END;

-- As in 0035, but a job that takes the key of a run waits for the end of that. One that gets no key follows nothing.
DO $$
DECLARE
    changes text[] := ARRAY[
        ['enqueue_insert', 'unique_live, unique_until, expires_at, tags)
', 'unique_live, unique_until, expires_at, tags, follow_at)
'],
        ['enqueue_insert', 'new_job.unique_until, new_job.expires_at, new_job.tags)',
         'new_job.unique_until, new_job.expires_at, new_job.tags, new_job.follow_at)'],
        ['enqueue_settle', '    runs_at timestamptz;', '    runs_at timestamptz;
    ended_first text;'],
        ['enqueue_settle', 'FOR NO KEY UPDATE SKIP LOCKED);
    BEGIN', 'FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING j.state INTO ended_first;
    runs_at := new_job.run_at;
    IF ended_first = ''running'' THEN
        new_job.follow_at := runs_at;
        new_job.run_at := follow_later();
    END IF;
    BEGIN'],
        ['enqueue_settle', 'new_job.unique_live := false;', 'new_job.run_at := runs_at;
    new_job.follow_at := NULL;
    new_job.unique_live := false;'],
        ['enqueue_settle', 'priority = asked.priority, run_at = asked.run_at, expires_at = asked.expires_at,',
         'priority = asked.priority, run_at = asked.run_at, expires_at = asked.expires_at,
            follow_at = CASE WHEN j.follow_at IS NOT NULL THEN least(j.follow_at, new_job.run_at) END,'],
        ['enqueue_settle', 'AND (h.priority, h.run_at, h.expires_at) IS DISTINCT FROM (a.priority, a.run_at, a.expires_at)
', 'AND ((h.priority, h.run_at, h.expires_at) IS DISTINCT FROM (a.priority, a.run_at, a.expires_at)
                    OR h.follow_at > new_job.run_at)
']];
    change text[];
    made text;
BEGIN
    FOREACH change SLICE 1 IN ARRAY changes LOOP
        made := pg_get_functiondef(change[1]::regproc);
        IF strpos(made, change[2]) = 0 THEN
            RAISE '% has no %', change[1], change[2];
        END IF;
        EXECUTE replace(made, change[2], change[3]);
    END LOOP;
END $$;

DO $$
BEGIN  -- as in 0041
    EXECUTE format('ALTER FUNCTION job_run_ended SET search_path = %s, pg_temp', (
        SELECT string_agg(quote_ident(name), ', ') FROM unnest(current_schemas(false)) AS name));
END $$;
