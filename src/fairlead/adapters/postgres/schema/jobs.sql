-- jobs: the jobs, in all states.
--
-- docs/states.md draws the states. `scheduled` and `retryable` are labels of available rows with a run_at in the
-- future. Priority: 0 critical, 1 urgent, 2 normal, 3 low. Spec: R18.

-- Columns of fixed width that are never NULL come first, because PostgreSQL finds them without reading the others,
-- and each update reads every column that is in an index. There is only one CHECK, because PostgreSQL parses the
-- text of each one again for every statement.
CREATE TABLE job (
    job_id uuid PRIMARY KEY,
    lane_id uuid NOT NULL,
    run_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    attempt integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 2,
    crash_count smallint NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'available',
    -- whether the job has the unique key: while it is open, and until unique_until if that is set
    unique_live boolean NOT NULL DEFAULT false,
    tenant_id text NOT NULL,
    group_key text NOT NULL DEFAULT '',
    kind text NOT NULL,
    queue text NOT NULL DEFAULT 'default',
    session_id uuid,
    lease_id bigint,
    -- the lease of the last accepted outcome, which distinguishes a lost response from a rejected write
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
    -- since when a call of this job has waited for a slot, over all its runs
    call_waits_since timestamptz,
    -- when the job is due once the run that it follows has ended; NULL: it follows none. Until then run_at is later
    -- than any delay (follow_up_run_at), so that no search for due jobs finds it
    follow_at timestamptz,
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

CREATE INDEX job_suspect_idx ON job (queue, run_at, job_id)
    WHERE state = 'available' AND crash_count > 0;
CREATE INDEX job_lane_idx ON job (lane_id, run_at, job_id) WHERE state = 'available' AND crash_count = 0;
-- Caps count the running jobs of a tenant or a group by when they began, so they do not read ended jobs that are
-- still in the index because of an old snapshot. The end of a session is rare and uses the same index, because each
-- index over running jobs slows every claim.
CREATE INDEX job_running_since_idx ON job (tenant_id, coalesce(started_at, 'infinity'), session_id)
    WHERE state = 'running';
CREATE INDEX job_running_group_since_idx ON job (group_key, coalesce(started_at, 'infinity'))
    WHERE state = 'running' AND group_key <> '';
CREATE INDEX job_finished_idx ON job (state, (greatest(finished_at, unique_until)))
    WHERE finished_at IS NOT NULL;
CREATE INDEX job_expiry_idx ON job (expires_at) WHERE state = 'available' AND expires_at IS NOT NULL;
CREATE UNIQUE INDEX job_unique_idx ON job (kind, tenant_id, unique_key) WHERE unique_live;
-- runs that have passed their unique key on
CREATE INDEX job_key_runs_idx ON job (kind, tenant_id, unique_key)
    WHERE state = 'running' AND NOT unique_live AND unique_key IS NOT NULL;

ALTER TABLE job ENABLE ROW LEVEL SECURITY;
ALTER TABLE job FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON job TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON job TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON job TO fairlead_engine;
GRANT SELECT ON job TO fairlead_reader;

-- Decisions that fairlead_enqueue defers to the commit of its transaction, and refusals that it caches during it. A row
-- exists as long as its transaction, so no other transaction sees it, and no role needs a right to it.
CREATE UNLOGGED TABLE enqueue_note (
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind text NOT NULL,
    of_tenant text NOT NULL DEFAULT '',
    unique_key text NOT NULL DEFAULT '',
    queue text NOT NULL DEFAULT '',
    -- the job that may have to be stored, and whether it must be stored whatever happens to the holder of its key
    new_job jsonb,
    must boolean,
    -- in a row without a job: the tenant for which the queue refuses this kind ('': all tenants; NULL: none)
    refused text,
    unique_while text NOT NULL DEFAULT 'follow_up',
    PRIMARY KEY (transaction_id, kind, of_tenant, unique_key, queue)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
