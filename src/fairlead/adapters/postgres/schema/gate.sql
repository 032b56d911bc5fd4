-- gate: overrides by operators, observed limits, and the first use of each key prefix.

-- An override applies to everything (no name), to all connections of a provider (only that name), or to one
-- connection (all three names); '' stands for no name. A process counts either in Redis or by its share, so `degraded`
-- applies to everything. rollout_since, step_s: limits are enforced again for a growing share of the connections,
-- one more step every step_s (policy/gate/overrides.py); NULL: no rollout.
CREATE TABLE gate_override (
    kind text NOT NULL CHECK (kind IN ('isolated', 'disabled', 'degraded')),
    tenant_id text NOT NULL DEFAULT '',
    provider text NOT NULL DEFAULT '',
    account text NOT NULL DEFAULT '',
    reason text NOT NULL CHECK (reason <> ''),
    actor text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    rollout_since timestamptz,
    step_s float8 CHECK (step_s > 0),
    PRIMARY KEY (kind, tenant_id, provider, account),
    CHECK ((tenant_id = '') = (account = '') AND (tenant_id = '' OR provider <> '')),
    CHECK (kind <> 'degraded' OR provider = ''),
    CHECK ((rollout_since IS NULL) = (step_s IS NULL) AND (rollout_since IS NULL OR kind = 'disabled'))
);
ALTER TABLE gate_override ENABLE ROW LEVEL SECURITY;
ALTER TABLE gate_override FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON gate_override TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON gate_override TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON gate_override TO fairlead_engine;

-- Limits of a connection as observed in responses.
CREATE TABLE observed_limit (
    connection_id uuid NOT NULL REFERENCES connection ON DELETE CASCADE,
    tenant_id text NOT NULL,
    -- the name of the limit in the provider's configuration
    limit_name text NOT NULL,
    -- the version of the connection's settings; observations under an older version are discarded
    version bigint NOT NULL,
    capacity double precision NOT NULL CHECK (capacity BETWEEN 0.001 AND 1000000000),
    per_s double precision NOT NULL CHECK (per_s BETWEEN 0.000001 AND 1000000000),
    observed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (connection_id, limit_name)
) WITH (fillfactor = 70);
ALTER TABLE observed_limit ENABLE ROW LEVEL SECURITY;
ALTER TABLE observed_limit FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON observed_limit TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON observed_limit TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON observed_limit TO fairlead_engine;

-- A key prefix in Redis, and the time from which slots may have been granted under it, on any server.
CREATE TABLE gate_first_use (
    prefix text PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT now()
);
GRANT SELECT, INSERT ON gate_first_use TO fairlead_engine;
