-- endpoint_healthy: close the breaker of an endpoint that responded; a token also ends the pause of its secret
-- and a debt of its rate (R50).
-- Takes   provider, app, place, bucket (row names), granted (the response has a token), secret_fingerprint
--         (NULL: the secret is the connection's own, which shows nothing about the app's)
-- Returns client_id (the row) of what was closed to other connections and is open again; the widest scope first
-- Locks   the endpoint's rows (endpoint_gate_lock)
-- Needs   the primary key
WITH gate AS MATERIALIZED (
    SELECT g.client_id, g.state = 'open' OR ends_pause AS is_reopened, ends_pause
    FROM endpoint_gate_lock(:provider, ARRAY[:app, :place, :bucket]) g, LATERAL (
        SELECT coalesce(:granted::boolean AND g.secret_fingerprint = :secret_fingerprint::text,
            false) AS ends_pause) AS secret_check
),
changed_gate AS (
    UPDATE endpoint_gate g SET
        state = CASE WHEN gate.is_reopened THEN 'closed' ELSE g.state END,
        secret_fingerprint = CASE WHEN gate.ends_pause THEN NULL ELSE g.secret_fingerprint END,
        failures = 0, openings = 0, failing = '{}',
        limited = CASE WHEN :granted::boolean THEN '{}' ELSE g.limited END,
        permits = CASE WHEN :granted::boolean AND g.permits < 0 THEN 1 ELSE g.permits END,
        refusing = CASE WHEN :granted::boolean AND :secret_fingerprint::text IS NOT NULL THEN '{}' ELSE g.refusing END,
        open_until = CASE WHEN NOT gate.ends_pause AND g.secret_fingerprint IS NOT NULL THEN g.open_until END,
        probe_until = NULL,
        changed_at = CASE WHEN gate.is_reopened THEN now() ELSE g.changed_at END
    FROM gate WHERE g.provider = :provider AND g.client_id = gate.client_id
    RETURNING g.client_id, gate.is_reopened
)
SELECT client_id FROM changed_gate WHERE is_reopened ORDER BY length(client_id);
