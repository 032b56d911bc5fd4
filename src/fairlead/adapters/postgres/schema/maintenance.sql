-- maintenance: the work that one process does for all.

-- One row per kind of maintenance, which one process at a time does. `uninterrupted_since` is when the
-- database began to answer without a gap: nothing is rescued before a full lease has passed since then. Spec:
-- R2, R4.
CREATE TABLE maintenance_run (
    name text PRIMARY KEY,
    session_id uuid,
    last_at timestamptz NOT NULL DEFAULT '-infinity',
    -- which server answered then: another one after a restart or a failover
    server_started_at timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    uninterrupted_since timestamptz NOT NULL DEFAULT now(),
    -- how long the last one took
    cost_s double precision NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON maintenance_run TO fairlead_engine;
