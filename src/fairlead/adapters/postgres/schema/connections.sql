-- connections: the accounts of tenants at providers, their sealed credentials, and refreshes in flight.

CREATE TABLE connection (
    connection_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    provider text NOT NULL,
    account text NOT NULL DEFAULT 'default',
    variant text,
    account_id text,
    client_id text NOT NULL DEFAULT '',
    endpoint jsonb NOT NULL DEFAULT '{}',
    settings jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, provider, account)
);
ALTER TABLE connection ENABLE ROW LEVEL SECURITY;
ALTER TABLE connection FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON connection TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON connection TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON connection TO fairlead_engine;
GRANT SELECT ON connection TO fairlead_reader;

-- All secrets are in `sealed`: AES-256-GCM, with tenant, connection, provider, field and generation as associated
-- data. `settled_epoch` is the epoch of the send that led to the stored response; 0 for a grant by a person.
CREATE TABLE credential (
    connection_id uuid PRIMARY KEY REFERENCES connection ON DELETE CASCADE,
    -- a copy of the connection's key, which never changes, so that scans for due credentials read this table only
    tenant_id text NOT NULL,
    provider text NOT NULL,
    account text NOT NULL,
    state text NOT NULL DEFAULT 'active'
        CHECK (state IN ('active', 'unknown', 'needs_reauth', 'revoked')),
    state_reason text,
    generation bigint NOT NULL DEFAULT 1 CHECK (generation > 0),
    settled_epoch bigint NOT NULL DEFAULT 0,
    sealed bytea NOT NULL,
    key_id uuid NOT NULL,
    refreshable boolean NOT NULL,
    expires_at timestamptz,
    urgent_at timestamptz,
    critical_at timestamptz,
    -- when a scan must act: refresh, or notify that a token cannot be refreshed
    due_at timestamptz,
    refreshed_at timestamptz,
    state_at timestamptz NOT NULL DEFAULT now(),
    -- when a person or an import gave the grant; a response to an earlier send belongs to an earlier grant. The
    -- generation alone does not show that: after a failover that lost a reconnect, the next reconnect gets the
    -- same generation
    granted_at timestamptz,
    -- when the spent token of the stored one was last sent: two responses to one token are ordered by the times
    -- of their requests. During a refresh that time is started_at of its row
    last_sent_at timestamptz
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX credential_due_idx ON credential (due_at, connection_id) WHERE due_at IS NOT NULL;
CREATE INDEX credential_key_idx ON credential (key_id);
ALTER TABLE credential ENABLE ROW LEVEL SECURITY;
ALTER TABLE credential FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON credential TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON credential TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON credential TO fairlead_engine;
-- fairlead_reader must not read the sealed secrets or the ids of their keys
GRANT SELECT (connection_id, tenant_id, provider, account, state, state_reason, generation, settled_epoch, refreshable,
              expires_at, urgent_at, critical_at, due_at, refreshed_at, state_at, granted_at, last_sent_at)
    ON credential TO fairlead_reader;

-- Numbers of sends; send_epoch_of_time raises them to the time. There is no CACHE, because a later send must have
-- the greater number on any backend. send_epoch_raise needs UPDATE.
CREATE SEQUENCE send_epoch AS bigint;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE send_epoch TO fairlead_engine;

-- A refresh in flight: its row is the mutex, the write-ahead intent and the SENT mark; it is deleted when the
-- refresh is settled. started_at is the time of the latest SENT mark. A foreign key would lock the connection's row
-- at each refresh, so there is none.
CREATE TABLE refresh_attempt (
    connection_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    attempt_id uuid NOT NULL,
    from_generation bigint NOT NULL,
    epoch bigint NOT NULL,
    phase text NOT NULL CHECK (phase IN ('intent', 'sent', 'unknown')),
    session_id uuid NOT NULL,
    lease_until timestamptz NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    sent_at timestamptz,
    replays smallint NOT NULL DEFAULT 0,
    reason text,
    CHECK ((phase = 'intent') OR (sent_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
ALTER TABLE refresh_attempt ENABLE ROW LEVEL SECURITY;
ALTER TABLE refresh_attempt FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON refresh_attempt TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON refresh_attempt TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON refresh_attempt TO fairlead_engine;
GRANT SELECT ON refresh_attempt TO fairlead_reader;

-- The back-off of one connection after failed refreshes.
CREATE TABLE refresh_backoff (
    connection_id uuid PRIMARY KEY REFERENCES connection ON DELETE CASCADE,
    tenant_id text NOT NULL,
    generation bigint NOT NULL,  -- the back-off does not apply to a newer generation
    failures integer NOT NULL,
    retry_at timestamptz NOT NULL,
    reason text NOT NULL
) WITH (fillfactor = 70);
ALTER TABLE refresh_backoff ENABLE ROW LEVEL SECURITY;
ALTER TABLE refresh_backoff FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON refresh_backoff TO fairlead_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON refresh_backoff TO fairlead_engine;

-- A connection with its credential and its refresh in flight; times are in seconds from now.
CREATE VIEW credential_detail WITH (security_invoker = true) AS
SELECT c.connection_id, c.tenant_id, c.provider, c.account, c.variant, c.account_id, c.client_id,
       c.endpoint, c.settings, cr.state, cr.state_reason, cr.generation, cr.settled_epoch, cr.sealed,
       cr.key_id, cr.refreshable, cr.expires_at, now() AS read_at,
       extract(epoch FROM cr.expires_at - now())::float8 AS expires_in_s,
       extract(epoch FROM cr.urgent_at - now())::float8 AS urgent_in_s,
       extract(epoch FROM cr.critical_at - now())::float8 AS critical_in_s,
       extract(epoch FROM cr.due_at - now())::float8 AS due_in_s,
       extract(epoch FROM now() - cr.refreshed_at)::float8 AS refreshed_age_s,
       r.attempt_id, r.from_generation, r.epoch, r.phase, r.session_id, r.replays,
       extract(epoch FROM now() - r.sent_at)::float8 AS age_sent_s,
       r.lease_until < now() AS expired,
       s.session_id IS NULL OR s.lost_at IS NOT NULL OR s.stopped_at IS NOT NULL AS owner_lost,
       (extract(epoch FROM c.updated_at) * 1000000)::bigint AS version,
       extract(epoch FROM now() - CASE WHEN r.sent_at IS NOT NULL THEN r.started_at END)::float8 AS age_last_sent_s,
       cr.granted_at
FROM connection c
JOIN credential cr USING (connection_id)
LEFT JOIN refresh_attempt r USING (connection_id)
LEFT JOIN worker_session s ON s.session_id = r.session_id;
GRANT SELECT ON credential_detail TO fairlead_engine, fairlead_reader;
