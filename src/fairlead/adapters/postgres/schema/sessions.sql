-- sessions: the processes of fairlead, and which kinds of jobs they handle.
--
-- Tables with frequent updates have a low fillfactor (space for HOT updates) and an eager autovacuum.

CREATE TABLE worker_session (
    session_id uuid PRIMARY KEY,
    -- boot id, pid namespace, pid and start time together prove on the same host that a process is dead
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
    stopped_at timestamptz,
    -- ids of the master keys that the process holds, the preferred one first, so that no process seals a secret that
    -- another cannot open
    master_keys text[],
    -- when a rotation of data keys last asked this process to read the current keys again
    data_keys_renewed_at timestamptz,
    -- why the process cannot claim jobs; NULL: it can
    trouble text,
    -- the version of its application, so that operators see an incomplete deploy; NULL: not stated
    app_version text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);
-- The open sessions. Ended ones stay for a week, also those of commands.
CREATE INDEX worker_session_open_idx ON worker_session (session_id) WHERE lost_at IS NULL AND stopped_at IS NULL;
-- Heartbeats do not change this index. The query only needs one of the sessions that ended lately, so the index has
-- no other column.
CREATE INDEX worker_session_ended_idx ON worker_session (greatest(lost_at, stopped_at));
GRANT SELECT, INSERT, UPDATE, DELETE ON worker_session TO fairlead_engine;

-- One row for each kind and queue that a worker takes, with the time of the last report. Each worker reports once a
-- minute.
CREATE TABLE kind_handler (
    queue text NOT NULL,
    kind text NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, kind)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON kind_handler TO fairlead_engine;
