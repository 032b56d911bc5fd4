-- 0001_ground_floor: sessions, jobs, schedules, connections, sealed credentials, dead letters, audit.
-- Phase   pre (safe while the version before it runs: there is none)
-- Needs   PostgreSQL 15 or newer; the right to create roles, or the two roles made beforehand
--
-- No schema is named: the connection's search_path decides where all of this lives.
-- Tables that are rewritten all day carry a low fillfactor (room for HOT updates) and eager autovacuum.

-- ---- who may see what (R35) --------------------------------------------------------------------
-- fairlead_engine sees all tenants; fairlead_door sees the one tenant set with SET LOCAL
-- fairlead.tenant_id, and nothing where none is set. Roles are shared by all databases of a server.
DO $$
DECLARE role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['fairlead_engine', 'fairlead_door'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
            END IF;
            -- USAGE, not MEMBER: who creates a role on PostgreSQL 16 and newer may only grant it at first
            IF NOT pg_has_role(current_user, role_name, 'USAGE') THEN
                EXECUTE format('GRANT %I TO %I', role_name, current_user);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- a migration run in another database made it at the same moment
        END;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role_name);
    END LOOP;
END $$;

-- ---- processes ---------------------------------------------------------------------------------

CREATE TABLE worker_session (
    session_id uuid PRIMARY KEY,
    -- boot id, pid-namespace inode, pid and start time together prove death on the same host (R7)
    host text NOT NULL,
    boot_id text NOT NULL,
    pid_namespace text NOT NULL,
    pid integer NOT NULL,
    process_started text NOT NULL,
    version text NOT NULL,
    lease interval NOT NULL CHECK (lease > interval '0'),
    started_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    lost_at timestamptz,
    stopped_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);

-- One row per sweep that must run once across the fleet at a time (R4). `uninterrupted_since` tells
-- since when the database has answered without a gap: nothing is rescued before a full lease of it (R2).
CREATE TABLE sweep (
    name text PRIMARY KEY,
    session_id uuid,
    last_at timestamptz NOT NULL DEFAULT '-infinity',
    -- which server answered then: another one after a restart and after a fail-over
    server_started_at timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    uninterrupted_since timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- ---- jobs --------------------------------------------------------------------------------------
-- States and transitions: docs/states.md. `scheduled` and `retryable` are labels of available rows
-- whose run_at has not come (R18). Priority: 0 critical, 1 urgent, 2 normal, 3 low.

-- What is of fixed width and never NULL stands first: PostgreSQL finds those columns without a walk, and for each
-- update of a row it looks at every column that is in an index. For the same reason there is one CHECK: the text of
-- each is read again for every statement.
CREATE TABLE job (
    job_id uuid PRIMARY KEY,
    -- filled in by 0002_lanes
    lane_id uuid,
    run_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    attempt integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 2,
    crash_count smallint NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'available',
    -- whether the key is taken: while the job is open, and until unique_until where there is one
    unique_live boolean NOT NULL DEFAULT false,
    tenant_id text NOT NULL,
    group_key text NOT NULL DEFAULT '',
    kind text NOT NULL,
    queue text NOT NULL DEFAULT 'default',
    session_id uuid,
    lease_id bigint,
    -- the last lease whose outcome was accepted: tells a write in doubt from a refused one
    settled_lease_id bigint,
    started_at timestamptz,
    finished_at timestamptz,
    expires_at timestamptz,
    unique_until timestamptz,
    unique_key text,
    provider text,
    -- the dead letter that this job replays
    replay_of uuid,
    streaks jsonb NOT NULL DEFAULT '{}',
    failures jsonb NOT NULL DEFAULT '[]',
    args jsonb NOT NULL DEFAULT '{}',
    result jsonb,
    tags text[] NOT NULL DEFAULT '{}',
    CONSTRAINT job_sound CHECK (
        priority BETWEEN 0 AND 3 AND attempt >= 0 AND crash_count >= 0
        AND CASE state
            WHEN 'available' THEN finished_at IS NULL AND (lease_id IS NULL OR session_id IS NULL)
            WHEN 'running' THEN finished_at IS NULL AND lease_id IS NOT NULL AND session_id IS NOT NULL
            ELSE state IN ('completed', 'cancelled', 'discarded')
                AND finished_at IS NOT NULL AND (lease_id IS NULL OR session_id IS NULL)
            END)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX job_ready_idx ON job (queue, priority, run_at, job_id)
    WHERE state = 'available' AND crash_count = 0;
CREATE INDEX job_kind_idx ON job (queue, kind, priority, run_at, job_id)
    WHERE state = 'available' AND crash_count = 0;
CREATE INDEX job_suspect_idx ON job (queue, run_at, job_id)
    WHERE state = 'available' AND crash_count > 0;
-- for caps, which count what runs of a tenant, and for sessions that end, which are rare: one index, since each that
-- holds running jobs costs every claim
CREATE INDEX job_running_idx ON job (tenant_id, session_id) WHERE state = 'running';
CREATE INDEX job_finished_idx ON job (state, (greatest(finished_at, unique_until)))
    WHERE finished_at IS NOT NULL;
CREATE INDEX job_expiry_idx ON job (expires_at) WHERE state = 'available' AND expires_at IS NOT NULL;
CREATE UNIQUE INDEX job_unique_idx ON job (kind, tenant_id, unique_key) WHERE unique_live;

CREATE TABLE schedule (
    name text PRIMARY KEY,
    expression text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    missed text NOT NULL DEFAULT 'coalesce' CHECK (missed IN ('coalesce', 'catch_up')),
    queue text NOT NULL DEFAULT 'default',
    kind text NOT NULL,
    tenant_id text NOT NULL,
    priority smallint NOT NULL DEFAULT 2 CHECK (priority BETWEEN 0 AND 3),
    args jsonb NOT NULL DEFAULT '{}',
    paused boolean NOT NULL DEFAULT false,
    last_tick timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Each tick that was taken, once: the record that none was missed and none doubled.
CREATE TABLE duty (
    schedule text NOT NULL,
    tick timestamptz NOT NULL,
    session_id uuid NOT NULL,
    coalesced integer NOT NULL DEFAULT 0,
    job_id uuid,
    taken_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (schedule, tick)
);
CREATE INDEX duty_taken_idx ON duty (taken_at);

CREATE TABLE dead_letter (
    dead_letter_id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    lineage_id uuid NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    tenant_id text NOT NULL,
    provider text,
    connection_id uuid,
    group_key text NOT NULL DEFAULT '',
    priority smallint NOT NULL,
    category text NOT NULL CHECK (category IN (
        'transient_network', 'transient_rate_limit', 'transient_server', 'permanent_auth',
        'permanent_config', 'permanent_permission', 'permanent_request')),
    code text NOT NULL,
    reason text NOT NULL CHECK (length(btrim(reason)) > 0),
    details jsonb NOT NULL DEFAULT '{}',
    history jsonb NOT NULL DEFAULT '[]',
    args jsonb NOT NULL DEFAULT '{}',
    unique_key text,
    token_expires_at timestamptz,
    status text NOT NULL DEFAULT 'pending_review'
        CHECK (status IN ('pending_review', 'auto_resolved', 'manual_resolved', 'abandoned')),
    resolution text CHECK (resolution IN (
        'reauthorize', 'config_fix', 'manual_refresh', 'redrive', 'abandoned')),
    resolved_by text,
    resolved_why text,
    resolved_at timestamptz,
    replays smallint NOT NULL DEFAULT 0,
    replay_job_id uuid,
    reauth_started_at timestamptz,
    last_notice_at timestamptz,
    -- when the processor has something to do here; NULL while only a person can act
    action_due_at timestamptz,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((status = 'pending_review') = (resolved_at IS NULL)),
    CHECK ((status = 'pending_review') = (resolution IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX dead_letter_due_idx ON dead_letter (action_due_at, first_at)
    WHERE status = 'pending_review' AND action_due_at IS NOT NULL;
CREATE INDEX dead_letter_open_idx ON dead_letter (queue, kind) WHERE status = 'pending_review';
CREATE INDEX dead_letter_tenant_idx ON dead_letter (tenant_id, first_at);
CREATE INDEX dead_letter_connection_idx ON dead_letter (connection_id)
    WHERE status = 'pending_review' AND connection_id IS NOT NULL;
CREATE INDEX dead_letter_unique_idx ON dead_letter (kind, tenant_id, unique_key)
    WHERE status = 'pending_review' AND unique_key IS NOT NULL;
CREATE INDEX dead_letter_job_idx ON dead_letter (job_id);
CREATE INDEX dead_letter_closed_idx ON dead_letter (queue, resolved_at) WHERE resolved_at IS NOT NULL;

-- A job's history keeps the last 20 failures.
CREATE FUNCTION failure_added(failures jsonb, failure jsonb) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_array_length(failures) >= 20 THEN failures - 0 ELSE failures END
        || jsonb_build_array(jsonb_build_object('at', now()) || failure)
$$;

-- The one way into the dead letters (R19), called in the statement that discards the job, with its row as
-- it stands then. A replay that fails reopens its entry; anything else, or a replay whose entry was closed
-- meanwhile, makes a new one.
CREATE FUNCTION dead_letter_bury(
    new_id uuid, dead job, why_category text, why_code text, why_reason text, why_details jsonb,
    about_connection uuid, about_token_expires_at timestamptz, due timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE replayed dead_letter; same dead_letter;
BEGIN
    IF dead.replay_of IS NOT NULL THEN
        SELECT * INTO replayed FROM dead_letter WHERE dead_letter_id = dead.replay_of FOR UPDATE;
        IF replayed.status = 'pending_review' AND replayed.replay_job_id = dead.job_id THEN
            same := replayed;
        END IF;
    ELSIF dead.unique_key IS NOT NULL THEN
        SELECT * INTO same FROM dead_letter
        WHERE kind = dead.kind AND tenant_id = dead.tenant_id AND unique_key = dead.unique_key
            AND status = 'pending_review' AND replay_job_id IS NULL
        ORDER BY first_at LIMIT 1 FOR UPDATE;
    END IF;
    IF same.dead_letter_id IS NOT NULL THEN
        UPDATE dead_letter SET
            job_id = dead.job_id, category = why_category, code = why_code, reason = why_reason,
            details = why_details, token_expires_at = about_token_expires_at, last_at = now(),
            replay_job_id = NULL, action_due_at = due,
            history = (SELECT jsonb_agg(entry ORDER BY n) FROM (
                SELECT entry, n
                FROM jsonb_array_elements(same.history || dead.failures) WITH ORDINALITY AS h(entry, n)
                ORDER BY n DESC LIMIT 20) AS latest)
        WHERE dead_letter_id = same.dead_letter_id;
        RETURN;
    END IF;
    INSERT INTO dead_letter (
        dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider, connection_id, group_key, priority,
        category, code, reason, details, history, args, unique_key, token_expires_at, action_due_at)
    VALUES (
        new_id, dead.job_id, coalesce(replayed.lineage_id, dead.job_id), dead.queue, dead.kind, dead.tenant_id,
        dead.provider, about_connection, dead.group_key, dead.priority, why_category, why_code, why_reason,
        why_details, dead.failures, dead.args, dead.unique_key, about_token_expires_at, due);
END $$;

-- ---- connections and their secrets -------------------------------------------------------------

CREATE TABLE connection (
    connection_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    provider text NOT NULL,
    bucket text NOT NULL DEFAULT 'default',
    variant text,
    account_id text,
    client_id text NOT NULL DEFAULT '',
    endpoint jsonb NOT NULL DEFAULT '{}',
    settings jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, provider, bucket)
);

-- Everything secret is in `sealed` (AES-256-GCM; associated data = tenant, connection, provider,
-- field, generation). `settled_epoch` is the send whose answer is live; 0 for a grant given by a person.
CREATE SEQUENCE send_epoch AS bigint;  -- no CACHE: a later send must have the greater number on any backend

CREATE TABLE credential (
    connection_id uuid PRIMARY KEY REFERENCES connection ON DELETE CASCADE,
    -- the connection's name, which never changes, once more: scans of what is due read this table alone
    tenant_id text NOT NULL,
    provider text NOT NULL,
    bucket text NOT NULL,
    state text NOT NULL DEFAULT 'active'
        CHECK (state IN ('active', 'unknown', 'needs_reauth', 'revoked')),
    state_reason text,
    generation bigint NOT NULL DEFAULT 1 CHECK (generation > 0),
    settled_epoch bigint NOT NULL DEFAULT 0,
    sealed bytea NOT NULL,
    key_id uuid NOT NULL,
    refreshable boolean NOT NULL,
    expires_at timestamptz,
    urgent_at timestamptz,
    critical_at timestamptz,
    -- when a scan should see to it: the scheduled refresh, or the notice of a token that cannot be
    due_at timestamptz,
    refreshed_at timestamptz,
    state_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX credential_due_idx ON credential (due_at, connection_id) WHERE due_at IS NOT NULL;
CREATE INDEX credential_key_idx ON credential (key_id);

-- A refresh in flight: its row is the mutex, the write-ahead intent and the SENT mark. Gone when settled.
-- No foreign key: it would lock the connection's row once a refresh for nothing.
CREATE TABLE rotation (
    connection_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    rotation_id uuid NOT NULL,
    from_generation bigint NOT NULL,
    epoch bigint NOT NULL,
    phase text NOT NULL CHECK (phase IN ('intent', 'sent', 'unknown')),
    session_id uuid NOT NULL,
    lease_until timestamptz NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    sent_at timestamptz,
    replays smallint NOT NULL DEFAULT 0,
    reason text,
    CHECK ((phase = 'intent') OR (sent_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- A connection with its credential and the refresh in flight, moments as seconds from now.
CREATE VIEW credential_detail WITH (security_invoker = true) AS
SELECT c.connection_id, c.tenant_id, c.provider, c.bucket, c.variant, c.account_id, c.client_id,
       c.endpoint, c.settings, cr.state, cr.state_reason, cr.generation, cr.settled_epoch, cr.sealed,
       cr.key_id, cr.refreshable, cr.expires_at, now() AS read_at,
       extract(epoch FROM cr.expires_at - now())::float8 AS expires_in_s,
       extract(epoch FROM cr.urgent_at - now())::float8 AS urgent_in_s,
       extract(epoch FROM cr.critical_at - now())::float8 AS critical_in_s,
       extract(epoch FROM cr.due_at - now())::float8 AS due_in_s,
       extract(epoch FROM now() - cr.refreshed_at)::float8 AS refreshed_age_s,
       r.rotation_id, r.from_generation, r.epoch, r.phase, r.session_id, r.replays,
       extract(epoch FROM now() - r.sent_at)::float8 AS age_sent_s,
       r.lease_until < now() AS expired,
       s.session_id IS NULL OR s.lost_at IS NOT NULL OR s.stopped_at IS NOT NULL AS owner_lost
FROM connection c
JOIN credential cr USING (connection_id)
LEFT JOIN rotation r USING (connection_id)
LEFT JOIN worker_session s ON s.session_id = r.session_id;

-- Answers that were paid for with a spent token but cannot be published (R12).
CREATE TABLE withheld_answer (
    withheld_id uuid PRIMARY KEY,
    connection_id uuid NOT NULL REFERENCES connection ON DELETE CASCADE,
    tenant_id text NOT NULL,
    from_generation bigint NOT NULL,
    epoch bigint NOT NULL,
    reason text NOT NULL,
    sealed bytea NOT NULL,
    key_id uuid NOT NULL,
    kept_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (connection_id, from_generation, epoch)
);
CREATE INDEX withheld_answer_key_idx ON withheld_answer (key_id);

-- Data keys, one current per tenant, wrapped by the master key named in master_id.
CREATE TABLE data_key (
    key_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    master_id text NOT NULL,
    wrapped bytea NOT NULL,
    current boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX data_key_current_idx ON data_key (tenant_id) WHERE current;

-- Token endpoints: rate, breaker and pause of (provider, client_id), until the gate exists (R13).
CREATE TABLE endpoint_gate (
    provider text NOT NULL,
    client_id text NOT NULL,
    state text NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'paused')),
    reason text,
    failures integer NOT NULL DEFAULT 0,
    openings integer NOT NULL DEFAULT 0,
    open_until timestamptz,
    probe_until timestamptz,
    secret_fingerprint text,
    permits double precision NOT NULL DEFAULT 0,
    refilled_at timestamptz NOT NULL DEFAULT now(),
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, client_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);

-- ---- audit (T13): append-only, no secrets ------------------------------------------------------

CREATE TABLE audit (
    audit_id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    tenant_id text,
    actor text NOT NULL,
    act text NOT NULL,
    provider text,
    connection_id uuid,
    details jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_tenant_idx ON audit (tenant_id, at);

CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit trail is append-only' USING HINT = 'add a correcting record instead';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- ---- row-level security ------------------------------------------------------------------------

DO $$
DECLARE table_name text;
BEGIN
    FOREACH table_name IN ARRAY ARRAY['job', 'dead_letter', 'connection', 'credential', 'rotation',
                                      'withheld_answer', 'data_key', 'audit'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', table_name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', table_name);
        EXECUTE format('CREATE POLICY engine_sees_all ON %I TO fairlead_engine USING (true) WITH CHECK (true)',
                       table_name);
        EXECUTE format('CREATE POLICY door_sees_its_tenant ON %I TO fairlead_door '
                       'USING (tenant_id = current_setting(''fairlead.tenant_id'', true)) '
                       'WITH CHECK (tenant_id = current_setting(''fairlead.tenant_id'', true))', table_name);
    END LOOP;
END $$;

GRANT SELECT, INSERT, UPDATE, DELETE ON worker_session, sweep, job, schedule, duty, dead_letter, connection,
    credential, rotation, withheld_answer, data_key, endpoint_gate TO fairlead_engine;
GRANT SELECT ON credential_detail TO fairlead_engine, fairlead_door;
GRANT USAGE ON SEQUENCE send_epoch TO fairlead_engine;
GRANT SELECT, INSERT ON audit TO fairlead_engine;
GRANT SELECT ON migration TO fairlead_engine, fairlead_door;
GRANT SELECT ON job, dead_letter, connection, credential, rotation, audit TO fairlead_door;
