-- tenants: weights, caps and pauses, as set by operators and programs.

CREATE TABLE tenant_tier (
    name text PRIMARY KEY,
    weight double precision CHECK (weight BETWEEN 0.001 AND 1000),
    max_running integer CHECK (max_running > 0)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_tier TO fairlead_engine;

CREATE TABLE tenant_setting (
    tenant_id text PRIMARY KEY,
    tier text REFERENCES tenant_tier,
    weight double precision CHECK (weight BETWEEN 0.001 AND 1000),
    max_running integer CHECK (max_running > 0)
);
CREATE INDEX tenant_setting_tier_idx ON tenant_setting (tier) WHERE tier IS NOT NULL;
ALTER TABLE tenant_setting ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_setting FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON tenant_setting TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON tenant_setting TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_setting TO fairlead_engine;

-- The caps in force. '' as the tenant: the jobs of the group of all tenants; '' as the group: all jobs of the tenant.
-- A claim locks the caps that it counts, so that two claims never count one at the same time.
CREATE TABLE concurrency_cap (
    tenant_id text NOT NULL,
    group_key text NOT NULL,
    max_running integer NOT NULL CHECK (max_running > 0),
    -- no running job under the cap began earlier, so a claim counts from here
    counted_from timestamptz NOT NULL DEFAULT '-infinity',
    -- a transaction that began after the cap was set and copied to its lanes. A claim that did not see the cap, and so
    -- did not lock it, is older. Until all older transactions have ended, all jobs are counted
    known_by xid8,
    PRIMARY KEY (tenant_id, group_key),
    CHECK (tenant_id <> '' OR group_key <> '')
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);
CREATE INDEX concurrency_cap_new_idx ON concurrency_cap (tenant_id) WHERE known_by IS NULL;
ALTER TABLE concurrency_cap ENABLE ROW LEVEL SECURITY;
ALTER TABLE concurrency_cap FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON concurrency_cap TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON concurrency_cap TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON concurrency_cap TO fairlead_engine;

-- Pauses, and rate holds: groups that wait for a reservation at the provider's limits (scope `rate`).
CREATE TABLE pause (
    scope text NOT NULL CHECK (scope IN ('queue', 'kind', 'tenant', 'provider', 'group', 'rate')),
    -- the tenant of a group; '' for a group that all tenants share, and for every other scope
    tenant_id text NOT NULL DEFAULT '',
    key text NOT NULL,
    until timestamptz NOT NULL DEFAULT 'infinity',
    reason text NOT NULL,
    paused_by text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, tenant_id, key),
    CHECK (tenant_id = '' OR scope IN ('group', 'rate'))
);
CREATE INDEX pause_until_idx ON pause (until);
ALTER TABLE pause ENABLE ROW LEVEL SECURITY;
ALTER TABLE pause FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON pause TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON pause TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON pause TO fairlead_engine;
