-- endpoint_healthy: close the breaker of an endpoint that answered; a token also ends the pause of its secret and a
--         debt of the rate (R50).
-- Takes   provider, app, place, bucket (row names), granted (it gave a token), secret_fingerprint (NULL: the
--         connection's own, which says nothing of the app's)
-- Returns client_id (the row) of what was closed to others and is open to them again; the widest first
-- Locks   the endpoint's rows (endpoint_gate_lock)
-- Needs   the primary key
WITH gates AS MATERIALIZED (
    SELECT g.client_id, g.state = 'open' OR lifts AS ends, lifts
    FROM endpoint_gate_lock(:provider, ARRAY[:app, :place, :bucket]) g, LATERAL (
        SELECT coalesce(:granted::boolean AND g.secret_fingerprint = :secret_fingerprint::text, false) AS lifts) AS said
),
changed AS (
    UPDATE endpoint_gate g SET
        state = CASE WHEN gates.ends THEN 'closed' ELSE g.state END,
        secret_fingerprint = CASE WHEN gates.lifts THEN NULL ELSE g.secret_fingerprint END,
        failures = 0, openings = 0, failing = '{}',
        limited = CASE WHEN :granted::boolean THEN '{}' ELSE g.limited END,
        permits = CASE WHEN :granted::boolean AND g.permits < 0 THEN 1 ELSE g.permits END,
        refusing = CASE WHEN :granted::boolean AND :secret_fingerprint::text IS NOT NULL THEN '{}' ELSE g.refusing END,
        open_until = CASE WHEN NOT gates.lifts AND g.secret_fingerprint IS NOT NULL THEN g.open_until END,
        probe_until = NULL,
        changed_at = CASE WHEN gates.ends THEN now() ELSE g.changed_at END
    FROM gates WHERE g.provider = :provider AND g.client_id = gates.client_id
    RETURNING g.client_id, gates.ends
)
SELECT client_id FROM changed WHERE ends ORDER BY length(client_id);
