-- 0034_blast_radius: token endpoints close to others only when two say so; a connection that failed waits by itself.
-- Phase   pre (the version before it counts failures, and writes none of the new columns)
-- Needs   0001_ground_floor

ALTER TABLE endpoint_gate
    ADD COLUMN failing text[] NOT NULL DEFAULT '{}',   -- connections that met an outage since the last answer; the process
                                                       -- behind those whose request never left
    ADD COLUMN limited uuid[] NOT NULL DEFAULT '{}',   -- connections that were told "too many" since the last token
    ADD COLUMN refusing text[] NOT NULL DEFAULT '{}';  -- a refused secret and the connection, or host, it was refused to

-- The rows of one endpoint, locked in order. Who holds one of them for long gets an error (55P03) for whoever asks, and
-- holds up no other endpoint.
CREATE FUNCTION endpoint_gates(of_provider text, names text[]) RETURNS SETOF endpoint_gate
LANGUAGE sql ROWS 3 SET lock_timeout = '400ms' AS $$
    SELECT * FROM endpoint_gate g WHERE g.provider = of_provider AND g.client_id = ANY (names)
    ORDER BY g.client_id FOR UPDATE
$$;

CREATE TABLE refresh_backoff (
    connection_id uuid PRIMARY KEY REFERENCES connection ON DELETE CASCADE,
    tenant_id text NOT NULL,
    generation bigint NOT NULL,  -- a newer one waits for nothing
    failures integer NOT NULL,
    retry_at timestamptz NOT NULL,
    reason text NOT NULL
) WITH (fillfactor = 70);

ALTER TABLE refresh_backoff ENABLE ROW LEVEL SECURITY;
ALTER TABLE refresh_backoff FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON refresh_backoff TO fairlead_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON refresh_backoff TO fairlead_engine;
DO $$ BEGIN  -- nothing is granted: no statement made for a tenant reads it
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'fairlead_tenant') THEN
        CREATE POLICY tenants_see_theirs ON refresh_backoff TO fairlead_tenant
            USING (tenant_id = ANY ((SELECT nullif(current_setting('fairlead.tenants', true), ''))::text[]))
            WITH CHECK (tenant_id = ANY ((SELECT nullif(current_setting('fairlead.tenants', true), ''))::text[]));
    END IF;
    EXECUTE replace(  -- for a role that is made later
        pg_get_functiondef('tenant_wall'::regproc),
        '[''withheld_answer'', '''']', '[''refresh_backoff'', '''']');
END $$;
