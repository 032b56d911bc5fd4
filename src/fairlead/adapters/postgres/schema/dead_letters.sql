-- dead_letters: one entry for each discarded job that a person or the dead letter processor must handle.

CREATE TABLE dead_letter (
    dead_letter_id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    lineage_id uuid NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    tenant_id text NOT NULL,
    provider text,
    connection_id uuid,
    group_key text NOT NULL DEFAULT '',
    priority smallint NOT NULL,
    category text NOT NULL CHECK (category IN (
        'transient_network', 'transient_rate_limit', 'transient_server', 'handler_error', 'permanent_auth',
        'permanent_config', 'permanent_permission', 'permanent_request')),
    code text NOT NULL,
    reason text NOT NULL CHECK (length(btrim(reason)) > 0),
    details jsonb NOT NULL DEFAULT '{}',
    history jsonb NOT NULL DEFAULT '[]',
    args jsonb NOT NULL DEFAULT '{}',
    unique_key text,
    token_expires_at timestamptz,
    status text NOT NULL DEFAULT 'pending_review'
        CHECK (status IN ('pending_review', 'auto_resolved', 'manual_resolved', 'abandoned')),
    resolution text CHECK (resolution IN (
        'reauthorize', 'config_fix', 'manual_refresh', 'redrive', 'abandoned')),
    resolved_by text,
    resolution_reason text,
    resolved_at timestamptz,
    replays smallint NOT NULL DEFAULT 0,
    replay_job_id uuid,
    reauth_started_at timestamptz,
    last_notice_at timestamptz,
    -- when the processor must read the entry again; NULL: only a person can act
    action_due_at timestamptz,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    -- the operator that requested the replay in progress; NULL: fairlead itself
    replayed_by text,
    CHECK ((status = 'pending_review') = (resolved_at IS NULL)),
    CHECK ((status = 'pending_review') = (resolution IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX dead_letter_due_idx ON dead_letter (action_due_at, first_at)
    WHERE status = 'pending_review' AND action_due_at IS NOT NULL;
CREATE INDEX dead_letter_open_idx ON dead_letter (queue, kind) WHERE status = 'pending_review';
CREATE INDEX dead_letter_tenant_idx ON dead_letter (tenant_id, first_at);
CREATE INDEX dead_letter_connection_idx ON dead_letter (connection_id)
    WHERE status = 'pending_review' AND connection_id IS NOT NULL;
CREATE INDEX dead_letter_unique_idx ON dead_letter (kind, tenant_id, unique_key)
    WHERE status = 'pending_review' AND unique_key IS NOT NULL;
CREATE INDEX dead_letter_job_idx ON dead_letter (job_id);
CREATE INDEX dead_letter_closed_idx ON dead_letter (queue, resolved_at) WHERE resolved_at IS NOT NULL;

ALTER TABLE dead_letter ENABLE ROW LEVEL SECURITY;
ALTER TABLE dead_letter FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON dead_letter TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON dead_letter TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letter TO fairlead_engine;
GRANT SELECT ON dead_letter TO fairlead_reader;
