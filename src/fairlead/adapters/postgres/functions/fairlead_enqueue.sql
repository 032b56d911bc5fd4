-- fairlead_enqueue: store one job in the current transaction. A program in any language may call it:
--
--     SELECT fairlead_enqueue('mail.send', 'acme', '{"to": "ada@example.com"}', unique_key => 'welcome/7');
--     SELECT fairlead_enqueue('stock.sync', 'acme', unique_key => 'sku/7', unique_while => 'open'),
--            current_setting('fairlead.key_state');
--
-- A role without any other right needs: GRANT USAGE ON SCHEMA ... TO app; GRANT EXECUTE ON FUNCTION
-- fairlead_enqueue TO app;
--
-- Takes   the parameters below. Times count from the start of the statement. dead_letter_bound: the number of
--         open dead letters from which the queue refuses the kinds that cause most of them; only the engine's
--         roles may raise it above the default. The decision holds for the rest of the transaction. notify
--         wakes listening workers at once, for a lock of the whole database at commit; without it workers poll
-- Returns the id of the job that will run: the new one, or the one that has the unique key. The setting
--         fairlead.key_state says in which state that job was: none, waiting, running or finished. A waiting
--         holder becomes as urgent as the new job at commit (key_holder_merge); if it begins before that,
--         another job is stored to run after it
-- Locks   no job and no lane, because callers' transactions may be long; only a new row of lane_wake. Callers
--         with the same unique key wait for each other
-- Needs   the owner's rights and a search_path of its own
CREATE FUNCTION fairlead_enqueue(
    kind text,
    tenant text,
    args jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    provider text DEFAULT NULL,
    account text DEFAULT NULL,
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
-- every read is a short range of an index, whatever the statistics say today
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
#variable_conflict use_column
<<func>>
DECLARE
    statement_at timestamptz := statement_timestamp();
    second CONSTANT interval := '1 second';
    problem text := coalesce(
        job_problem($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13), unique_while_problem($17, $10));
    refused text;
    new_job job;
    holder job;
    run_id uuid;
    follows boolean := $17 <> 'waiting';
    note enqueue_note;
    key_state text := 'none';
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'fairlead_enqueue refuses ' || problem, HINT = 'nothing was stored; correct it and call again';
    END IF;
    IF NOT may_act_for(fairlead_enqueue.tenant) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'fairlead_enqueue: this role may not enqueue for this tenant',
            HINT = 'SET LOCAL fairlead.tenant_id to the tenant that this role acts for';
    END IF;
    IF EXISTS (SELECT FROM dead_letter d WHERE d.queue = fairlead_enqueue.queue AND d.kind = fairlead_enqueue.kind
                   AND d.status = 'pending_review') THEN
        SELECT n.refused INTO refused FROM enqueue_note n
        WHERE n.transaction_id = pg_current_xact_id() AND n.kind = fairlead_enqueue.kind AND n.of_tenant = ''
            AND n.unique_key = '' AND n.queue = fairlead_enqueue.queue;
        IF NOT FOUND THEN
            refused := (
                SELECT coalesce(r.tenant_id, '') FROM dead_letter_refusals(fairlead_enqueue.queue, CASE
                    WHEN pg_catalog.pg_has_role(
                        coalesce(nullif(current_setting('role'), 'none')::name, session_user), 'fairlead_engine', 'USAGE')
                    THEN dead_letter_bound ELSE least(dead_letter_bound, 10000::bigint) END) AS r
                WHERE r.kind = fairlead_enqueue.kind);
            INSERT INTO enqueue_note (kind, queue, refused)
            VALUES (fairlead_enqueue.kind, fairlead_enqueue.queue, func.refused);
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
        fairlead_enqueue.provider || '/' || coalesce(fairlead_enqueue.account, 'default'), '');
    new_job.priority := fairlead_enqueue.priority;
    new_job.run_at := statement_at + fairlead_enqueue.delay_s * second;
    new_job.args := fairlead_enqueue.args;
    new_job.unique_key := fairlead_enqueue.unique_key;
    new_job.unique_live := fairlead_enqueue.unique_key IS NOT NULL;
    new_job.unique_until := statement_at + fairlead_enqueue.unique_for_s * second;
    new_job.expires_at := statement_at + fairlead_enqueue.expires_in_s * second;
    new_job.tags := fairlead_enqueue.tags;
    IF notify AND fairlead_enqueue.delay_s = 0::double precision THEN
        PERFORM pg_notify('fairlead_job', fairlead_enqueue.queue);
    END IF;
    IF new_job.unique_live THEN  -- a run that has passed its key on
        SELECT j.job_id INTO run_id FROM job j
        WHERE j.kind = new_job.kind AND j.tenant_id = new_job.tenant_id AND j.unique_key = new_job.unique_key
            AND j.unique_key IS NOT NULL AND NOT j.unique_live AND j.state = 'running'
        ORDER BY j.result IS NOT NULL LIMIT 1;
        IF run_id IS NOT NULL THEN
            key_state := 'running';
        END IF;
    END IF;
    FOR try IN 1..10 LOOP  -- a holder may end between two reads
        -- the insert comes first: under REPEATABLE READ a holder that has changed since the snapshot raises 40001
        IF NOT (follows AND run_id IS NOT NULL) AND enqueue_insert(new_job) IS NOT NULL THEN
            PERFORM set_config('fairlead.key_state', key_state, true);
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
        ELSIF FOUND THEN  -- the id is another tenant's, which this one must not learn
            new_job.job_id := fairlead_uuid7();
        END IF;
    END LOOP;
    IF holder.job_id IS NULL THEN
        IF NOT follows OR run_id IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
                MESSAGE = 'fairlead_enqueue: other transactions took and released the unique key ten times';
        END IF;
        SELECT j.* INTO holder FROM job j WHERE j.job_id = run_id;
    END IF;
    IF holder.job_id = new_job.job_id OR holder.unique_until > statement_at
        OR key_run_covers(fairlead_enqueue.unique_while, holder.state, holder.result) THEN
        PERFORM set_config('fairlead.key_state', key_state_of(holder.state), true);
        RETURN holder.job_id;
    END IF;
    INSERT INTO enqueue_note AS n (kind, of_tenant, unique_key, unique_while, new_job, must)
    VALUES (new_job.kind, new_job.tenant_id, new_job.unique_key, fairlead_enqueue.unique_while,
            pg_catalog.to_jsonb(new_job), NOT key_covers(holder.kind, holder.state, holder.expires_at, NULL, statement_at))
    ON CONFLICT (transaction_id, kind, of_tenant, unique_key, queue) DO UPDATE SET
        must = n.must OR excluded.must,
        unique_while = CASE  -- the choice that stores most
            WHEN n.unique_while = excluded.unique_while THEN n.unique_while
            WHEN 'waiting' IN (n.unique_while, excluded.unique_while) THEN 'waiting' ELSE 'follow_up' END,
        new_job = n.new_job || (
            SELECT pg_catalog.to_jsonb(a) FROM key_holder_merge(
                pg_catalog.jsonb_populate_record(NULL::job, n.new_job),
                func.new_job.priority, func.new_job.run_at, func.new_job.expires_at) AS a)
    RETURNING n.* INTO note;
    IF NOT note.must THEN
        PERFORM set_config('fairlead.key_state', key_state_of(holder.state), true);
        RETURN holder.job_id;
    END IF;
    PERFORM set_config('fairlead.key_state', CASE
        WHEN (note.new_job ->> 'job_id')::uuid <> new_job.job_id THEN 'waiting'  -- a job of this transaction
        WHEN holder.state = 'running' THEN 'running' ELSE key_state END, true);
    RETURN (note.new_job ->> 'job_id')::uuid;
END $$;

REVOKE ALL ON FUNCTION fairlead_enqueue FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fairlead_enqueue TO fairlead_engine;
