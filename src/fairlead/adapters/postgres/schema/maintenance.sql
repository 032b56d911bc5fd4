-- maintenance: work that one process at a time does for all.

-- One row per kind of maintenance. `uninterrupted_since` is the time since which the database has been available
-- without a gap; no job is rescued before a full lease has passed since then. Spec: R2, R4.
CREATE TABLE maintenance_run (
    name text PRIMARY KEY,
    session_id uuid,
    last_at timestamptz NOT NULL DEFAULT '-infinity',
    -- the start of the server that the last run used; a restart or a failover changes it
    server_started_at timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    uninterrupted_since timestamptz NOT NULL DEFAULT now(),
    -- how long the last run took
    cost_s double precision NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON maintenance_run TO fairlead_engine;
