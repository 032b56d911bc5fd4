-- endpoint_failed: the endpoint did not answer, or with a 5xx; enough of these open its breaker.
-- Takes   provider, client_id, threshold (failures in a row), open_s, open_max_s, probe (ours was the probe), reason
-- Gives   opened_s: how long it is open for if the breaker opened by this, else null
-- Locks   the endpoint's row
-- Needs   the primary key; while it is open only the probe's failure opens it again, for twice as long
WITH before AS MATERIALIZED (
    SELECT provider, client_id,
        state <> 'paused' AND (:probe::boolean OR (state = 'closed' AND failures + 1 >= :threshold::integer)) AS opens
    FROM endpoint_gate WHERE provider = :provider AND client_id = :client_id FOR UPDATE
)
UPDATE endpoint_gate SET
    failures = failures + 1,
    reason = :reason,
    state = CASE WHEN opens THEN 'open' ELSE state END,
    open_until = CASE WHEN opens
        THEN now() + least(:open_s::float8 * power(2, least(openings, 20)), :open_max_s::float8) * interval '1 second'
        ELSE open_until END,
    openings = openings + opens::integer,
    probe_until = CASE WHEN :probe::boolean THEN NULL ELSE probe_until END,
    changed_at = now()
FROM before WHERE endpoint_gate.provider = before.provider AND endpoint_gate.client_id = before.client_id
RETURNING CASE WHEN opens THEN extract(epoch FROM open_until - now())::float8 END AS opened_s;
