-- 0035_unique_keys: only a job that can still do the work answers for another one of its unique key (R53), and one that
-- dies is an entry as if it were new (R19); what runs with its owner's rights uses exact matches (R54).
-- Phase   pre (the version before it calls the same functions)
-- Needs   0021_full_dead_letters, 0022_own_work

-- A function with BEGIN ATOMIC or RETURN is parsed here, once. An operator or function that is added to the schema
-- later cannot take the place of one that it uses, as it can where a body is a text.
DO $$
DECLARE used regproc;
BEGIN
    FOREACH used IN ARRAY ARRAY['is_own', 'is_name', 'is_label', 'is_delay', 'are_tags', 'job_problem', 'may_act_for',
                                'lane_of', 'dead_letter_refused', 'stride_of']::regproc[] LOOP
        EXECUTE regexp_replace(
            pg_get_functiondef(used), 'AS \$function\$(.*)\$function\$', 'BEGIN ATOMIC \1; END');
    END LOOP;
END $$;

-- RFC 9562, version 7, with the microseconds where it allows for them: jobs of one statement keep their order.
CREATE OR REPLACE FUNCTION fairlead_uuid7() RETURNS uuid LANGUAGE sql VOLATILE
RETURN (
    SELECT encode(overlay(
        uuid_send(gen_random_uuid()) PLACING int8send(us / 1000 << 16 | 28672 | us % 1000 * 4) FROM 1 FOR 8), 'hex')::uuid
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS now
);

-- ---- who answers for a unique key --------------------------------------------------------------

-- Whether the holder of a unique key answers for a new job: for a time that was asked for (unique_for_s), or while it
-- waits and will still be run. A job that has begun does not: it may have read before the caller's change. Keys of our
-- own kinds name the state that the job is about, so that a running one will do.
CREATE FUNCTION key_is_held(
    kind text, state text, expires_at timestamptz, unique_until timestamptz, moment timestamptz
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(unique_until > moment, false)
    OR state = 'available' AND coalesce(expires_at > moment, true)
    OR state = 'running' AND is_own(kind);

-- What a holder that waits becomes when it answers for another job: as urgent, good for as long and, unless it has
-- begun before (it retries, or was snoozed), run as soon.
CREATE FUNCTION key_answered(holder job, priority smallint, run_at timestamptz, expires_at timestamptz)
RETURNS TABLE (priority smallint, run_at timestamptz, expires_at timestamptz)
LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT least(holder.priority, $2),
        CASE WHEN holder.attempt > 0 OR holder.settled_lease_id IS NOT NULL THEN holder.run_at
             ELSE least(holder.run_at, $3) END,
        CASE WHEN holder.state <> 'available' THEN holder.expires_at
             ELSE nullif(greatest(coalesce(holder.expires_at, 'infinity'), coalesce($4, 'infinity')), 'infinity') END;
END;

-- What fairlead_enqueue leaves to the commit of its transaction, and what it need not ask twice in one. A row lives as
-- long as its transaction, so that nobody else ever sees one.
CREATE UNLOGGED TABLE enqueue_note (
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind text NOT NULL,
    of_tenant text NOT NULL DEFAULT '',
    unique_key text NOT NULL DEFAULT '',
    queue text NOT NULL DEFAULT '',
    -- the job that may have to be stored, and whether it must be, whatever the holder of its key does meanwhile
    new_job jsonb,
    must boolean,
    -- without a job: whose jobs of this kind the queue refuses ('': everybody's; NULL: nobody's)
    refused text,
    PRIMARY KEY (transaction_id, kind, of_tenant, unique_key, queue)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

-- Store a job and leave its lane to the next claim; NULL where its id or its unique key is taken.
CREATE FUNCTION enqueue_insert(new_job job) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE in_lane uuid;
BEGIN
    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, unique_key,
                     unique_live, unique_until, expires_at, tags)
    VALUES (new_job.job_id, new_job.kind, new_job.tenant_id, new_job.queue, new_job.provider, new_job.group_key,
            new_job.priority, new_job.run_at, new_job.args, new_job.unique_key, new_job.unique_live,
            new_job.unique_until, new_job.expires_at, new_job.tags)
    ON CONFLICT DO NOTHING RETURNING job.lane_id INTO in_lane;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO lane_wake (lane_id, due_at) VALUES (in_lane, new_job.run_at);
    RETURN new_job.job_id;
END $$;

-- Run as the caller's transaction commits. A job that holds the key and still waits is locked until that is done: so it
-- begins after it, and sees what the caller stored. Else the caller's own job is stored. Waits for nobody: a holder that
-- somebody else is at counts as begun, and a key that somebody else is taking is left to him.
CREATE FUNCTION enqueue_settle() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_seqscan = off SET lock_timeout = 0 AS $$
DECLARE
    note enqueue_note;
    new_job job;
    moment timestamptz := clock_timestamp();
    in_lane uuid;
    runs_at timestamptz;
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
            lane_id = lane_of(j.queue, j.kind, j.provider, asked.priority, j.tenant_id, j.group_key)
        FROM (
            SELECT h.job_id, a.* FROM job h
                CROSS JOIN key_answered(h, new_job.priority, new_job.run_at, new_job.expires_at) AS a
            WHERE h.kind = new_job.kind AND h.tenant_id = new_job.tenant_id AND h.unique_key = new_job.unique_key
                AND h.unique_live AND h.state = 'available'
                AND (h.priority, h.run_at, h.expires_at) IS DISTINCT FROM (a.priority, a.run_at, a.expires_at)
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
            AND h.unique_live AND key_is_held(h.kind, h.state, h.expires_at, h.unique_until, moment)
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
        FOR NO KEY UPDATE SKIP LOCKED);
    BEGIN
        PERFORM set_config('lock_timeout', '1ms', true);
        IF enqueue_insert(new_job) IS NOT NULL THEN
            RETURN NULL;
        END IF;
    EXCEPTION WHEN lock_not_available THEN  -- two that wait for each other's keys would be a deadlock
    END;
    PERFORM set_config('lock_timeout', '0', true);
    new_job.unique_live := false;  -- the key is another job's: so this one has none
    PERFORM enqueue_insert(new_job);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER enqueue_settle AFTER INSERT ON enqueue_note DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION enqueue_settle();

-- As in 0005, but that no job is locked: one that waits answers, becomes as urgent at the commit (key_answered), and
-- should it begin before that, another is stored in its wake. Times count from the statement.
--
-- dead_letter_bound: open dead letters of the queue that refuse work of a kind they are full of; more than the default
-- counts only for roles of the engine. The answer is kept for the rest of the transaction.
CREATE OR REPLACE FUNCTION fairlead_enqueue(
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
    dead_letter_bound bigint DEFAULT 10000
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER
-- what is read here is always a short range of an index, whatever the statistics say today
SET enable_seqscan = off AS $$
#variable_conflict use_column
<<it>>
DECLARE
    moment timestamptz := statement_timestamp();
    second CONSTANT interval := '1 second';
    problem text := job_problem($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
    refused text;
    new_job job;
    holder job;
    note enqueue_note;
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
    FOR try IN 1..10 LOOP  -- a holder may end between two looks
        -- first of all: under REPEATABLE READ a holder that this transaction does not see as it is raises 40001
        IF enqueue_insert(new_job) IS NOT NULL THEN
            RETURN new_job.job_id;
        END IF;
        SELECT j.* INTO holder FROM job j
        WHERE j.kind = new_job.kind AND j.tenant_id = new_job.tenant_id AND j.unique_key = new_job.unique_key
            AND j.unique_live;
        EXIT WHEN FOUND;
        SELECT j.* INTO holder FROM job j WHERE j.job_id = new_job.job_id;
        IF FOUND AND holder.tenant_id = new_job.tenant_id THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation',
                MESSAGE = 'fairlead_enqueue: tenant ' || new_job.tenant_id || ' has a job of this id';
        ELSIF FOUND THEN  -- another tenant's, of which nothing is said
            new_job.job_id := fairlead_uuid7();
        END IF;
    END LOOP;
    IF holder.job_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = 'fairlead_enqueue: the unique key is taken and let go all the time';
    END IF;
    IF holder.job_id = new_job.job_id OR holder.unique_until > moment THEN
        RETURN holder.job_id;
    END IF;
    INSERT INTO enqueue_note AS n (kind, of_tenant, unique_key, new_job, must)
    VALUES (new_job.kind, new_job.tenant_id, new_job.unique_key, pg_catalog.to_jsonb(new_job),
            NOT key_is_held(holder.kind, holder.state, holder.expires_at, NULL, moment))
    ON CONFLICT (transaction_id, kind, of_tenant, unique_key, queue) DO UPDATE SET
        must = n.must OR excluded.must,
        new_job = n.new_job || (
            SELECT pg_catalog.to_jsonb(a) FROM key_answered(
                pg_catalog.jsonb_populate_record(NULL::job, n.new_job),
                it.new_job.priority, it.new_job.run_at, it.new_job.expires_at) AS a)
    RETURNING n.* INTO note;
    RETURN CASE WHEN note.must THEN (note.new_job ->> 'job_id')::uuid ELSE holder.job_id END;
END $$;

DO $$
DECLARE owned regprocedure;
BEGIN
    -- A caller's search_path, and a caller's temporary tables, must not decide what runs with other rights.
    FOREACH owned IN ARRAY ARRAY['enqueue_settle'::regproc, 'fairlead_enqueue'::regproc] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', owned, current_schema());
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION enqueue_settle, enqueue_insert FROM PUBLIC;

-- An entry that took in another job of its key kept what the first one was to do, and counted its replays and its days
-- from then: a redrive ran the old work, and the new was given up untried. What was cancelled has no entry.
DO $$
DECLARE
    made text := pg_get_functiondef('dead_letter_bury'::regproc);
    change text[];
BEGIN
    FOREACH change SLICE 1 IN ARRAY ARRAY[
        ['    IF dead.replay_of IS NOT NULL THEN', '    IF dead.state = ''cancelled'' THEN  -- its processor looks again
        UPDATE dead_letter SET replay_job_id = NULL, action_due_at = now()
        WHERE dead_letter_id = dead.replay_of AND replay_job_id = dead.job_id AND status = ''pending_review'';
        RETURN;
    ELSIF dead.replay_of IS NOT NULL THEN'],
        ['ORDER BY first_at LIMIT 1 FOR UPDATE;', 'ORDER BY first_at LIMIT 1 FOR UPDATE;
        UPDATE dead_letter SET
            lineage_id = dead.job_id, queue = dead.queue, provider = dead.provider, group_key = dead.group_key,
            priority = dead.priority, args = dead.args, connection_id = coalesce(about_connection, connection_id),
            first_at = now(), replays = 0, reauth_started_at = NULL, last_notice_at = NULL
        WHERE dead_letter_id = same.dead_letter_id;']] LOOP
        IF strpos(made, change[1]) = 0 THEN
            RAISE 'dead_letter_bury has no %', change[1];
        END IF;
        made := replace(made, change[1], change[2]);
    END LOOP;
    EXECUTE made;
END $$;
