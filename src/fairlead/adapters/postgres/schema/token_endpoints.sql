-- token_endpoints: rate, breaker and pause of each token endpoint, by provider and client id. They are not part of the
-- gate of calls (Redis), so that a refresh gets its permit in the statement that claims it, and refreshes continue
-- without Redis (docs/adr/0018). Spec: R13.

CREATE TABLE endpoint_gate (
    provider text NOT NULL,
    client_id text NOT NULL,
    state text NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'paused')),
    reason text,
    failures integer NOT NULL DEFAULT 0,
    openings integer NOT NULL DEFAULT 0,
    open_until timestamptz,
    probe_until timestamptz,
    secret_fingerprint text,
    permits double precision NOT NULL DEFAULT 0,
    refilled_at timestamptz NOT NULL DEFAULT now(),
    changed_at timestamptz NOT NULL DEFAULT now(),
    -- connections that failed since the last response, with the process if the request was not sent
    failing text[] NOT NULL DEFAULT '{}',
    -- connections that were rate-limited since the last token
    limited uuid[] NOT NULL DEFAULT '{}',
    -- a rejected secret, and the connection or host for which it was rejected
    refusing text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (provider, client_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON endpoint_gate TO fairlead_engine;
