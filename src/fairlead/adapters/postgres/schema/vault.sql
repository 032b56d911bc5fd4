-- vault: data keys, each wrapped by the master key that master_id names; one current key per tenant.

CREATE TABLE data_key (
    key_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    master_id text NOT NULL,
    wrapped bytea NOT NULL,
    current boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX data_key_current_idx ON data_key (tenant_id) WHERE current;
ALTER TABLE data_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE data_key FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON data_key TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON data_key TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON data_key TO fairlead_engine;
