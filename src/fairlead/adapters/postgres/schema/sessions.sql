-- sessions: the processes of fairlead, and which kinds of jobs they handle.
--
-- Tables that are rewritten all day carry a low fillfactor (room for HOT updates) and eager autovacuum.

CREATE TABLE worker_session (
    session_id uuid PRIMARY KEY,
    -- boot id, pid-namespace inode, pid and start time together prove death on the same host
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
    -- ids of the master keys that the process holds, the preferred one first, so that none seals what another
    -- cannot open
    master_keys text[],
    -- when a rotation of data keys has asked this process to read the current ones again
    data_keys_renewed_at timestamptz,
    -- what keeps the process from claiming jobs; NULL: nothing
    trouble text,
    -- the version of its application, so that operators see a deploy that is half done; NULL: not stated
    app_version text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);
-- Commands leave a row for a week, too: these are the open ones.
CREATE INDEX worker_session_open_idx ON worker_session (session_id) WHERE lost_at IS NULL AND stopped_at IS NULL;
-- Heartbeats do not touch this index. Of many sessions that ended at once, one is enough, so it needs no
-- other column.
CREATE INDEX worker_session_ended_idx ON worker_session (greatest(lost_at, stopped_at));
GRANT SELECT, INSERT, UPDATE, DELETE ON worker_session TO fairlead_engine;

-- One row for each kind and queue that a worker takes, with the time of the last report; each worker reports
-- once a minute.
CREATE TABLE kind_handler (
    queue text NOT NULL,
    kind text NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, kind)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON kind_handler TO fairlead_engine;
