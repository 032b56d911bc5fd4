-- endpoint_healthy: the endpoint answered, so its breaker closes; a token also lifts the pause of its secret (R50).
-- Takes   provider, app, place, bucket (row names), granted (it gave a token), secret_fingerprint (NULL: the
--         connection's own, which says nothing of the app's)
-- Gives   nothing
-- Locks   the endpoint's rows, by name
-- Needs   the primary key
WITH gates AS MATERIALIZED (
    SELECT g.client_id, coalesce(:granted::boolean AND g.secret_fingerprint = :secret_fingerprint::text, false) AS lifts
    FROM endpoint_gate g WHERE g.provider = :provider AND g.client_id IN (:app, :place, :bucket)
    ORDER BY g.client_id FOR UPDATE
)
UPDATE endpoint_gate g SET
    state = CASE WHEN g.state = 'open' OR gates.lifts THEN 'closed' ELSE g.state END,
    secret_fingerprint = CASE WHEN gates.lifts THEN NULL ELSE g.secret_fingerprint END,
    failures = 0, openings = 0, failing = '{}',
    limited = CASE WHEN :granted::boolean THEN '{}' ELSE g.limited END,
    refusing = CASE WHEN :granted::boolean AND :secret_fingerprint::text IS NOT NULL THEN '{}' ELSE g.refusing END,
    open_until = CASE WHEN NOT gates.lifts AND g.secret_fingerprint IS NOT NULL THEN g.open_until END, probe_until = NULL,
    changed_at = CASE WHEN g.state = 'open' OR gates.lifts THEN now() ELSE g.changed_at END
FROM gates WHERE g.provider = :provider AND g.client_id = gates.client_id;
