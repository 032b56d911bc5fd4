-- endpoint_resume: let all connections of an app use this endpoint again, on an operator's request.
-- Takes   provider, client_id (the row)
-- Returns a row if there was anything to end
-- Locks   the endpoint's row (endpoint_gate_lock), and the back-offs
-- Needs   the primary key. It reads the back-offs of the provider: it is rare, because a person requests it
WITH reopened_gate AS (
    UPDATE endpoint_gate g SET
        state = 'closed', reason = NULL, failures = 0, openings = 0, open_until = NULL, probe_until = NULL,
        permits = greatest(g.permits, 1), secret_fingerprint = NULL, failing = '{}', limited = '{}', refusing = '{}',
        changed_at = now()
    FROM endpoint_gate_lock(:provider, ARRAY[:client_id]) AS locked_gate
    WHERE g.provider = :provider AND g.client_id = locked_gate.client_id
        AND (g.state <> 'closed' OR g.secret_fingerprint IS NOT NULL OR g.permits < 0)
    RETURNING 1
),
deleted_backoff AS (
    DELETE FROM refresh_backoff b USING connection c
    WHERE b.connection_id = c.connection_id AND c.provider = :provider AND b.retry_at > now()
        AND starts_with(:client_id || ' ', coalesce(nullif(c.client_id, ''), '-') || ' ')
    RETURNING 1
)
SELECT FROM reopened_gate UNION ALL SELECT FROM deleted_backoff LIMIT 1;
