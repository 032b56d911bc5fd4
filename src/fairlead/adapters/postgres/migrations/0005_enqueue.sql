-- 0005_enqueue: fairlead_enqueue, by which any program stores a job inside a transaction of its own (Q1).
-- Phase   pre (the version before it does not call it)
-- Needs   0002_lanes
--
--     SELECT fairlead_enqueue('mail.send', 'acme', '{"to": "ada@example.com"}', unique_key => 'welcome/7');
--
-- For a role that has no other right here:
--
--     GRANT USAGE ON SCHEMA ... TO app;
--     GRANT EXECUTE ON FUNCTION fairlead_enqueue TO app;

-- RFC 9562, version 7: the milliseconds of this moment, then chance. (uuidv7() is of PostgreSQL 18.)
CREATE FUNCTION fairlead_uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6
    ), 52, 1), 53, 1), 'hex')::uuid
$$;

-- Whether the caller of a function of ours may act for this tenant. A door may for the tenant that is set for
-- it, and so may whoever has set one; the engine, and a role without a tenant that was granted the function,
-- for any (R35). `role` and session_user are the caller's own in a function that runs as its owner.
CREATE FUNCTION may_act_for(tenant text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN pg_has_role(caller.name, 'fairlead_engine', 'USAGE') THEN true
        WHEN caller.tenant IS NOT NULL THEN caller.tenant = may_act_for.tenant
        ELSE NOT pg_has_role(caller.name, 'fairlead_door', 'MEMBER')
    END
    FROM (SELECT coalesce(nullif(current_setting('role'), 'none')::name, session_user) AS name,
                 nullif(current_setting('fairlead.tenant_id', true), '') AS tenant) AS caller
$$;

-- The checks of policy/names.py and policy/job.py; plain expressions, so that they are part of the caller's plan.
CREATE FUNCTION is_name(name text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT name COLLATE "C" ~ '^[a-z0-9][a-z0-9_.-]{0,63}$'
$$;
CREATE FUNCTION is_label(label text, most_bytes integer) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT octet_length(label) BETWEEN 1 AND most_bytes AND label !~ '[\u0001-\u001f\u007f-\u009f]'
$$;
CREATE FUNCTION is_delay(delay_s double precision) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT delay_s BETWEEN 0 AND 31622400
$$;
CREATE FUNCTION are_tags(tags text[]) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT cardinality(tags) <= 16 AND (SELECT bool_and(is_label(tag, 64)) IS NOT FALSE FROM unnest(tags) AS tag)
        AND array_position(tags, NULL) IS NULL
$$;

-- The first thing that is wrong with a new job; NULL: nothing.
CREATE FUNCTION job_problem(
    kind text, tenant text, args jsonb, queue text, provider text, bucket text, group_key text, priority integer,
    delay_s double precision, unique_key text, unique_for_s double precision, expires_in_s double precision,
    tags text[]
) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN is_name(kind) IS NOT TRUE THEN 'kind: use 1 to 64 of a-z, 0-9, _, ., -'
        WHEN is_own(kind) THEN 'kind: those that begin with token., event. or dead_letter. are fairlead''s own'
        WHEN is_label(tenant, 200) IS NOT TRUE THEN 'tenant: use 1 to 200 bytes without control characters'
        WHEN jsonb_typeof(args) IS DISTINCT FROM 'object' THEN 'args: give a JSON object'
        -- twice what Python allows: the server counts its own blanks
        WHEN octet_length(args::text) > 131072 THEN 'args: they are larger than 64 KiB; give a reference'
        WHEN is_name(queue) IS NOT TRUE THEN 'queue: use 1 to 64 of a-z, 0-9, _, ., -'
        WHEN NOT is_name(provider) THEN 'provider: use 1 to 64 of a-z, 0-9, _, ., -'
        WHEN NOT is_name(bucket) THEN 'bucket: use 1 to 64 of a-z, 0-9, _, ., -'
        WHEN bucket IS NOT NULL AND provider IS NULL THEN 'bucket: give the provider, too'
        WHEN group_key <> '' AND NOT is_label(group_key, 400)
            THEN 'group_key: use 1 to 400 bytes without control characters'
        WHEN priority NOT BETWEEN 0 AND 3 OR priority IS NULL
            THEN 'priority: give 0 (critical), 1 (urgent), 2 (normal) or 3 (low)'
        WHEN is_delay(delay_s) IS NOT TRUE THEN 'delay_s: give seconds from 0 to 31622400 (366 days)'
        WHEN NOT is_label(unique_key, 200) THEN 'unique_key: use 1 to 200 bytes without control characters'
        WHEN NOT is_delay(unique_for_s) THEN 'unique_for_s: give seconds from 0 to 31622400 (366 days)'
        WHEN unique_for_s IS NOT NULL AND unique_key IS NULL THEN 'unique_for_s: give a unique_key, too'
        WHEN NOT is_delay(expires_in_s) THEN 'expires_in_s: give seconds from 0 to 31622400 (366 days)'
        WHEN expires_in_s <= delay_s THEN 'expires_in_s: it must be longer than delay_s'
        WHEN cardinality(tags) = 0 THEN NULL
        WHEN are_tags(tags) IS NOT TRUE THEN 'tags: give at most 16, of 1 to 64 bytes without control characters'
    END
$$;

-- Stores one job in the current transaction and gives its id, or that of the open job with the same unique key,
-- whose priority is raised. Times count from the call, not from the beginning of the transaction.
--
-- Business transactions are of any length, so nothing is locked here that others need: no lane, only a row of
-- lane_wake that the next claim takes; and one caller waits for another on the same unique key alone. notify
-- wakes listening workers at once: it takes a lock of the whole database at commit, so by default they poll.
--
-- It runs with its owner's rights, on a search_path of its own (below).
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
    dead_letter_bound bigint DEFAULT 10000
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER
-- what is read here is always a short range of an index, whatever the statistics say today
SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    of_group text := coalesce(group_key, provider || '/' || coalesce(bucket, 'default'), '');
    problem text;
    found_id uuid;
    in_lane uuid;
    runs_at timestamptz;
BEGIN
    problem := job_problem(
        fairlead_enqueue.kind, fairlead_enqueue.tenant, fairlead_enqueue.args, fairlead_enqueue.queue,
        fairlead_enqueue.provider, fairlead_enqueue.bucket, fairlead_enqueue.group_key,
        fairlead_enqueue.priority, fairlead_enqueue.delay_s, fairlead_enqueue.unique_key,
        fairlead_enqueue.unique_for_s, fairlead_enqueue.expires_in_s, fairlead_enqueue.tags);
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
                   AND d.status = 'pending_review')
        AND fairlead_enqueue.kind IN (  -- as dead_letter_full.sql has it (Q10)
            SELECT d.kind FROM dead_letter d WHERE d.queue = fairlead_enqueue.queue AND d.status = 'pending_review'
            GROUP BY d.kind
            HAVING count(*) >= (
                SELECT CASE WHEN sum(entries) >= dead_letter_bound THEN avg(entries) ELSE 'Infinity' END
                FROM (SELECT count(*) AS entries FROM dead_letter o
                      WHERE o.queue = fairlead_enqueue.queue AND o.status = 'pending_review' GROUP BY o.kind) AS open))
    THEN
        RAISE EXCEPTION USING ERRCODE = 'configuration_limit_exceeded',
            MESSAGE = format('fairlead_enqueue: queue %s takes no new %s: its dead letters are full of them',
                             fairlead_enqueue.queue, fairlead_enqueue.kind),
            HINT = 'heal the cause, then `fairlead dlq redrive`, `resolve` or `abandon`';
    END IF;

    IF fairlead_enqueue.unique_key IS NOT NULL THEN
        UPDATE job SET unique_live = false  -- finished long enough ago: the key is free again
        WHERE kind = fairlead_enqueue.kind AND tenant_id = fairlead_enqueue.tenant
            AND unique_key = fairlead_enqueue.unique_key AND unique_live
            AND finished_at IS NOT NULL AND unique_until <= moment;
        SELECT j.job_id INTO found_id FROM job j
        WHERE j.kind = fairlead_enqueue.kind AND j.tenant_id = fairlead_enqueue.tenant
            AND j.unique_key = fairlead_enqueue.unique_key AND j.unique_live;
        IF FOUND THEN
            UPDATE job SET priority = fairlead_enqueue.priority, lane_id = lane_of(
                job.queue, job.kind, job.provider, fairlead_enqueue.priority::smallint, job.tenant_id, job.group_key)
            WHERE job_id = found_id AND state = 'available' AND priority > fairlead_enqueue.priority
            RETURNING lane_id, run_at INTO in_lane, runs_at;
            IF FOUND THEN
                INSERT INTO lane_wake (lane_id, due_at) VALUES (in_lane, runs_at);
            END IF;
            RETURN found_id;
        END IF;
    END IF;

    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, unique_key,
                     unique_live, unique_until, expires_at, tags)
    VALUES (coalesce(fairlead_enqueue.job_id, fairlead_uuid7()), fairlead_enqueue.kind, fairlead_enqueue.tenant,
            fairlead_enqueue.queue, fairlead_enqueue.provider, of_group, fairlead_enqueue.priority,
            moment + fairlead_enqueue.delay_s * interval '1 second', fairlead_enqueue.args,
            fairlead_enqueue.unique_key, fairlead_enqueue.unique_key IS NOT NULL,
            moment + fairlead_enqueue.unique_for_s * interval '1 second',
            moment + fairlead_enqueue.expires_in_s * interval '1 second', fairlead_enqueue.tags)
    -- reached only in a race: the key was taken after the look above
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live
        DO UPDATE SET priority = least(job.priority, excluded.priority), lane_id = lane_of(
            job.queue, job.kind, job.provider, least(job.priority, excluded.priority), job.tenant_id, job.group_key)
    RETURNING job.job_id, job.lane_id, job.run_at INTO found_id, in_lane, runs_at;
    INSERT INTO lane_wake (lane_id, due_at) VALUES (in_lane, runs_at);
    IF notify AND fairlead_enqueue.delay_s = 0 THEN
        PERFORM pg_notify('fairlead_job', fairlead_enqueue.queue);
    END IF;
    RETURN found_id;
END $$;

DO $$
BEGIN
    -- A caller's search_path, and a caller's temporary tables, must not decide what runs with other rights.
    EXECUTE format('ALTER FUNCTION fairlead_enqueue SET search_path = %I, pg_temp', current_schema());
END $$;
REVOKE ALL ON FUNCTION fairlead_enqueue FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fairlead_enqueue TO fairlead_engine;
