-- 0011_learnt_limits: what answers told of a connection's limits, and since when the gate may have let a call in (G3,
-- R23).
-- Phase   pre (the version before it reads and writes neither)
-- Needs   0009_connection_version
CREATE TABLE learnt_limit (
    connection_id uuid NOT NULL REFERENCES connection ON DELETE CASCADE,
    tenant_id text NOT NULL,
    -- the limit's own name among its provider's
    limit_name text NOT NULL,
    -- of the connection whose settings were in force: newer settings end what was learnt under older ones
    version bigint NOT NULL,
    capacity double precision NOT NULL CHECK (capacity BETWEEN 0.001 AND 1000000000),
    per_s double precision NOT NULL CHECK (per_s BETWEEN 0.000001 AND 1000000000),
    learnt_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (connection_id, limit_name)
) WITH (fillfactor = 70);

-- A key prefix in Redis from the moment on at which its first slot might be granted; on whatever server.
CREATE TABLE gate_start (
    prefix text PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT now()
);
-- '' stands for every prefix: an installation from before this table may have granted slots under any.
INSERT INTO gate_start (prefix)
SELECT '' WHERE EXISTS (SELECT FROM worker_session) OR EXISTS (SELECT FROM connection);

ALTER TABLE learnt_limit ENABLE ROW LEVEL SECURITY;
ALTER TABLE learnt_limit FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON learnt_limit TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY door_sees_its_tenant ON learnt_limit TO fairlead_door
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON learnt_limit TO fairlead_engine;
GRANT SELECT, INSERT ON gate_start TO fairlead_engine;
