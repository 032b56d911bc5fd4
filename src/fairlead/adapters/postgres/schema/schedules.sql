-- schedules: cron entries, and a record of each run.

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
    last_run_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    -- the longest delay of a job after the time of its run
    jitter interval NOT NULL DEFAULT '0' CHECK (jitter >= '0'),
    -- a pause by an operator; `paused` is the program's own declaration, which each start writes again
    pause_at timestamptz,
    pause_by text,
    pause_reason text,
    CHECK (num_nulls(pause_at, pause_by, pause_reason) IN (0, 3))
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON schedule TO fairlead_engine;

-- One row per run of a schedule, which shows that no run was missed or doubled.
CREATE TABLE schedule_run (
    schedule text NOT NULL,
    run_at timestamptz NOT NULL,
    session_id uuid NOT NULL,
    coalesced integer NOT NULL DEFAULT 0,
    job_id uuid,
    taken_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (schedule, run_at)
);
CREATE INDEX schedule_run_taken_idx ON schedule_run (taken_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON schedule_run TO fairlead_engine;
