-- 0050_unique_while: an enqueue chooses what it does while a job of its unique key runs, and learns what its key met.
-- Phase   pre (the version before it calls fairlead_enqueue without the new parameter, which has a default)
-- Needs   0047_follow_up, 0049_key_runs
--
--     SELECT fairlead_enqueue('stock.sync', 'acme', unique_key => 'sku/7', unique_while => 'open'),
--            current_setting('fairlead.met');

-- What the job in this state is for a new job of its unique key.
CREATE FUNCTION key_met(state text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE state WHEN 'available' THEN 'waiting' WHEN 'running' THEN 'running' ELSE 'finished' END;

-- Whether the holder of a unique key answers although it runs. One that is being cancelled does not.
CREATE FUNCTION key_is_open(unique_while text, state text, result jsonb)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN unique_while = 'open' AND state = 'running' AND result IS NULL;

-- A run of this unique key that has handed the key on, locked: it ends after the commit of the caller. NULL: there is
-- none. With answering none that is being cancelled. It is called for each job that is stored with a key: a join for it
-- would make such an enqueue cost a fifth more.
CREATE FUNCTION key_run(kind text, tenant_id text, unique_key text, answering boolean) RETURNS uuid LANGUAGE plpgsql
SET enable_seqscan = off AS $$
BEGIN
    RETURN (
        SELECT j.job_id FROM job j
        WHERE j.kind = $1 AND j.tenant_id = $2 AND j.unique_key = $3 AND j.unique_key IS NOT NULL
            AND NOT j.unique_live AND j.state = 'running' AND NOT ($4 AND j.result IS NOT NULL)
        LIMIT 1 FOR NO KEY UPDATE);
END $$;

-- What is wrong with unique_while; NULL: nothing. As in policy/job.py.
CREATE FUNCTION unique_while_problem(unique_while text, unique_key text)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN unique_while IN ('follow_up', 'waiting', 'open') IS NOT TRUE THEN
        'unique_while: use follow_up, waiting or open; the nearest is '
            || CASE left(lower(unique_while), 1) WHEN 'w' THEN 'waiting' WHEN 'o' THEN 'open' ELSE 'follow_up' END
    WHEN unique_while <> 'follow_up' AND unique_key IS NULL THEN 'unique_while: give a unique_key, too'
END;

ALTER TABLE enqueue_note ADD COLUMN unique_while text NOT NULL DEFAULT 'follow_up';

-- As in 0047. A run that handed its key on before to a job that is gone is followed as well.
CREATE OR REPLACE FUNCTION enqueue_settle() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_seqscan = off SET lock_timeout = 0 AS $$
DECLARE
    note enqueue_note;
    new_job job;
    moment timestamptz := clock_timestamp();
    in_lane uuid;
    runs_at timestamptz;
    ended_first text;
BEGIN
    DELETE FROM enqueue_note n
    WHERE n.transaction_id = NEW.transaction_id AND n.kind = NEW.kind AND n.of_tenant = NEW.of_tenant
        AND n.unique_key = NEW.unique_key AND n.queue = NEW.queue
    RETURNING * INTO note;
    IF note.new_job IS NULL THEN
        RETURN NULL;
    END IF;
    new_job := pg_catalog.jsonb_populate_record(NULL::job, note.new_job);
    IF NOT note.must THEN
        UPDATE job j SET
            priority = asked.priority, run_at = asked.run_at, expires_at = asked.expires_at,
            follow_at = CASE WHEN j.follow_at IS NOT NULL THEN least(j.follow_at, new_job.run_at) END,
            lane_id = lane_of(j.queue, j.kind, j.provider, asked.priority, j.tenant_id, j.group_key)
        FROM (
            SELECT h.job_id, a.* FROM job h
                CROSS JOIN key_answered(h, new_job.priority, new_job.run_at, new_job.expires_at) AS a
            WHERE h.kind = new_job.kind AND h.tenant_id = new_job.tenant_id AND h.unique_key = new_job.unique_key
                AND h.unique_live AND h.state = 'available'
                AND ((h.priority, h.run_at, h.expires_at) IS DISTINCT FROM (a.priority, a.run_at, a.expires_at)
                    OR h.follow_at > new_job.run_at)
                AND key_is_held(h.kind, h.state, h.expires_at, NULL, moment)
            FOR NO KEY UPDATE OF h SKIP LOCKED) AS asked
        WHERE j.job_id = asked.job_id
        RETURNING j.lane_id, j.run_at INTO in_lane, runs_at;
        IF FOUND THEN
            INSERT INTO lane_wake (lane_id, due_at) VALUES (in_lane, runs_at);
            RETURN NULL;
        END IF;
        PERFORM FROM job h
        WHERE h.kind = new_job.kind AND h.tenant_id = new_job.tenant_id AND h.unique_key = new_job.unique_key
            AND h.unique_live AND (key_is_held(h.kind, h.state, h.expires_at, h.unique_until, moment)
                                   OR key_is_open(note.unique_while, h.state, h.result))
        FOR SHARE SKIP LOCKED;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE job j SET unique_live = false
    WHERE j.job_id = (
        SELECT h.job_id FROM job h
        WHERE h.kind = new_job.kind AND h.tenant_id = new_job.tenant_id AND h.unique_key = new_job.unique_key
            AND h.unique_live AND NOT key_is_held(h.kind, h.state, h.expires_at, h.unique_until, moment)
        FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING j.state INTO ended_first;
    runs_at := new_job.run_at;
    IF note.unique_while <> 'waiting' THEN
        IF ended_first IS DISTINCT FROM 'running' THEN
            SELECT h.state INTO ended_first FROM job h
            WHERE h.kind = new_job.kind AND h.tenant_id = new_job.tenant_id AND h.unique_key = new_job.unique_key
                AND h.unique_key IS NOT NULL AND NOT h.unique_live AND h.state = 'running'
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;  -- locked, it ends after this commit
        END IF;
        IF ended_first = 'running' THEN
            new_job.follow_at := runs_at;
            new_job.run_at := follow_later();
        END IF;
    END IF;
    BEGIN
        PERFORM set_config('lock_timeout', '1ms', true);
        IF enqueue_insert(new_job) IS NOT NULL THEN
            RETURN NULL;
        END IF;
    EXCEPTION WHEN lock_not_available THEN  -- two that wait for each other's keys would be a deadlock
    END;
    PERFORM set_config('lock_timeout', '0', true);
    new_job.run_at := runs_at;
    new_job.follow_at := NULL;
    new_job.unique_live := false;  -- the key is another job's: so this one has none
    PERFORM enqueue_insert(new_job);
    RETURN NULL;
END $$;

-- As in 0035, with one parameter more. What the key met is left in the setting fairlead.met until the transaction ends.
-- The job that runs is not locked here: a note has the commit do so, as transactions of callers are of any length.
ALTER FUNCTION fairlead_enqueue RENAME TO fairlead_enqueue_before;
CREATE FUNCTION fairlead_enqueue(
    kind text,
    tenant text,
    args jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    provider text DEFAULT NULL,
    bucket text DEFAULT NULL,
    group_key text DEFAULT NULL,
    priority integer DEFAULT 2,
    delay_s double precision DEFAULT 0,
    unique_key text DEFAULT NULL,
    unique_for_s double precision DEFAULT NULL,
    expires_in_s double precision DEFAULT NULL,
    tags text[] DEFAULT '{}',
    job_id uuid DEFAULT NULL,
    notify boolean DEFAULT false,
    dead_letter_bound bigint DEFAULT 10000,
    unique_while text DEFAULT 'follow_up'
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER
-- what is read here is always a short range of an index, whatever the statistics say today
SET enable_seqscan = off AS $$
#variable_conflict use_column
<<it>>
DECLARE
    moment timestamptz := statement_timestamp();
    second CONSTANT interval := '1 second';
    problem text := coalesce(
        job_problem($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13), unique_while_problem($17, $10));
    refused text;
    new_job job;
    holder job;
    run_id uuid;
    follows boolean := $17 <> 'waiting';
    note enqueue_note;
    met text := 'none';
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'fairlead_enqueue refuses ' || problem, HINT = 'nothing was stored; correct it and call again';
    END IF;
    IF NOT may_act_for(fairlead_enqueue.tenant) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'fairlead_enqueue: this role may not enqueue for this tenant',
            HINT = 'SET LOCAL fairlead.tenant_id to the tenant whose door this is';
    END IF;
    IF EXISTS (SELECT FROM dead_letter d WHERE d.queue = fairlead_enqueue.queue AND d.kind = fairlead_enqueue.kind
                   AND d.status = 'pending_review') THEN
        SELECT n.refused INTO refused FROM enqueue_note n
        WHERE n.transaction_id = pg_current_xact_id() AND n.kind = fairlead_enqueue.kind AND n.of_tenant = ''
            AND n.unique_key = '' AND n.queue = fairlead_enqueue.queue;
        IF NOT FOUND THEN
            refused := (
                SELECT coalesce(r.tenant_id, '') FROM dead_letter_refused(fairlead_enqueue.queue, CASE
                    WHEN pg_catalog.pg_has_role(
                        coalesce(nullif(current_setting('role'), 'none')::name, session_user), 'fairlead_engine', 'USAGE')
                    THEN dead_letter_bound ELSE least(dead_letter_bound, 10000::bigint) END) AS r
                WHERE r.kind = fairlead_enqueue.kind);
            INSERT INTO enqueue_note (kind, queue, refused)
            VALUES (fairlead_enqueue.kind, fairlead_enqueue.queue, it.refused);
        END IF;
        IF refused IN ('', fairlead_enqueue.tenant) THEN
            RAISE EXCEPTION USING ERRCODE = 'configuration_limit_exceeded',
                MESSAGE = 'fairlead_enqueue: queue ' || fairlead_enqueue.queue || ' takes no new '
                    || fairlead_enqueue.kind || ': its dead letters are full of them',
                HINT = 'heal the cause, then `fairlead dlq redrive`, `resolve` or `abandon`';
        END IF;
    END IF;

    new_job.job_id := coalesce(fairlead_enqueue.job_id, fairlead_uuid7());
    new_job.kind := fairlead_enqueue.kind;
    new_job.tenant_id := fairlead_enqueue.tenant;
    new_job.queue := fairlead_enqueue.queue;
    new_job.provider := fairlead_enqueue.provider;
    new_job.group_key := coalesce(fairlead_enqueue.group_key,
        fairlead_enqueue.provider || '/' || coalesce(fairlead_enqueue.bucket, 'default'), '');
    new_job.priority := fairlead_enqueue.priority;
    new_job.run_at := moment + fairlead_enqueue.delay_s * second;
    new_job.args := fairlead_enqueue.args;
    new_job.unique_key := fairlead_enqueue.unique_key;
    new_job.unique_live := fairlead_enqueue.unique_key IS NOT NULL;
    new_job.unique_until := moment + fairlead_enqueue.unique_for_s * second;
    new_job.expires_at := moment + fairlead_enqueue.expires_in_s * second;
    new_job.tags := fairlead_enqueue.tags;
    IF notify AND fairlead_enqueue.delay_s = 0::double precision THEN
        PERFORM pg_notify('fairlead_job', fairlead_enqueue.queue);
    END IF;
    IF new_job.unique_live THEN  -- a run that has handed its key on
        SELECT j.job_id INTO run_id FROM job j
        WHERE j.kind = new_job.kind AND j.tenant_id = new_job.tenant_id AND j.unique_key = new_job.unique_key
            AND j.unique_key IS NOT NULL AND NOT j.unique_live AND j.state = 'running'
        ORDER BY j.result IS NOT NULL LIMIT 1;
        IF run_id IS NOT NULL THEN
            met := 'running';
        END IF;
    END IF;
    FOR try IN 1..10 LOOP  -- a holder may end between two looks
        -- first of all: under REPEATABLE READ a holder that this transaction does not see as it is raises 40001
        IF NOT (follows AND run_id IS NOT NULL) AND enqueue_insert(new_job) IS NOT NULL THEN
            PERFORM set_config('fairlead.met', met, true);
            RETURN new_job.job_id;
        END IF;
        SELECT j.* INTO holder FROM job j
        WHERE j.kind = new_job.kind AND j.tenant_id = new_job.tenant_id AND j.unique_key = new_job.unique_key
            AND j.unique_live;
        EXIT WHEN FOUND OR follows AND run_id IS NOT NULL;
        SELECT j.* INTO holder FROM job j WHERE j.job_id = new_job.job_id;
        IF FOUND AND holder.tenant_id = new_job.tenant_id THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation',
                MESSAGE = 'fairlead_enqueue: tenant ' || new_job.tenant_id || ' has a job of this id';
        ELSIF FOUND THEN  -- another tenant's, of which nothing is said
            new_job.job_id := fairlead_uuid7();
        END IF;
    END LOOP;
    IF holder.job_id IS NULL THEN
        IF NOT follows OR run_id IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
                MESSAGE = 'fairlead_enqueue: the unique key is taken and let go all the time';
        END IF;
        SELECT j.* INTO holder FROM job j WHERE j.job_id = run_id;
    END IF;
    IF holder.job_id = new_job.job_id OR holder.unique_until > moment
        OR key_is_open(fairlead_enqueue.unique_while, holder.state, holder.result) THEN
        PERFORM set_config('fairlead.met', key_met(holder.state), true);
        RETURN holder.job_id;
    END IF;
    INSERT INTO enqueue_note AS n (kind, of_tenant, unique_key, unique_while, new_job, must)
    VALUES (new_job.kind, new_job.tenant_id, new_job.unique_key, fairlead_enqueue.unique_while,
            pg_catalog.to_jsonb(new_job), NOT key_is_held(holder.kind, holder.state, holder.expires_at, NULL, moment))
    ON CONFLICT (transaction_id, kind, of_tenant, unique_key, queue) DO UPDATE SET
        must = n.must OR excluded.must,
        unique_while = CASE  -- what asks for most
            WHEN n.unique_while = excluded.unique_while THEN n.unique_while
            WHEN 'waiting' IN (n.unique_while, excluded.unique_while) THEN 'waiting' ELSE 'follow_up' END,
        new_job = n.new_job || (
            SELECT pg_catalog.to_jsonb(a) FROM key_answered(
                pg_catalog.jsonb_populate_record(NULL::job, n.new_job),
                it.new_job.priority, it.new_job.run_at, it.new_job.expires_at) AS a)
    RETURNING n.* INTO note;
    IF NOT note.must THEN
        PERFORM set_config('fairlead.met', key_met(holder.state), true);
        RETURN holder.job_id;
    END IF;
    PERFORM set_config('fairlead.met', CASE
        WHEN (note.new_job ->> 'job_id')::uuid <> new_job.job_id THEN 'waiting'  -- this transaction's own
        WHEN holder.state = 'running' THEN 'running' ELSE met END, true);
    RETURN (note.new_job ->> 'job_id')::uuid;
END $$;

DO $$
DECLARE
    owned regprocedure;
    was record;
BEGIN
    -- A caller's search_path, and a caller's temporary tables, must not decide what runs with other rights.
    FOREACH owned IN ARRAY ARRAY['enqueue_settle'::regproc, 'fairlead_enqueue'::regproc] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', owned, current_schema());
    END LOOP;
    EXECUTE format('ALTER FUNCTION key_run SET search_path = %s, pg_temp', (
        SELECT string_agg(quote_ident(name), ', ') FROM unnest(current_schemas(false)) AS name));  -- as in 0041
    -- Roles of applications keep the right to enqueue.
    REVOKE ALL ON FUNCTION fairlead_enqueue FROM PUBLIC;
    FOR was IN
        SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS role,
            CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option
        FROM pg_proc p CROSS JOIN aclexplode(p.proacl) AS a
        WHERE p.oid = 'fairlead_enqueue_before'::regproc AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION fairlead_enqueue TO %s%s', was.role, was.option);
    END LOOP;
END $$;
DROP FUNCTION fairlead_enqueue_before;
