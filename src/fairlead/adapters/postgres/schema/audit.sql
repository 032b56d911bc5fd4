-- audit: the record of changes and their actors; append-only, without secrets. Spec: T13.

CREATE TABLE audit (
    audit_id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    tenant_id text,
    actor text NOT NULL,
    act text NOT NULL,
    provider text,
    connection_id uuid,
    details jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_tenant_idx ON audit (tenant_id, at);
ALTER TABLE audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON audit TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON audit TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
-- no role may set `at`, the time of the record
GRANT SELECT, INSERT (audit_id, tenant_id, actor, act, provider, connection_id, details) ON audit TO fairlead_engine;
GRANT SELECT ON audit TO fairlead_reader;
