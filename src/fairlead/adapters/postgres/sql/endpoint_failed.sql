-- endpoint_failed: the endpoint did not answer, or with a 5xx; enough of these open its breaker.
-- Takes   provider, client_id, threshold (failures in a row), open_s, open_max_s, probe (ours was the probe), reason
-- Gives   open_s if the breaker opened by this
-- Locks   the endpoint's row
-- Needs   the primary key; while it is open only the probe's failure opens it again, for twice as long
UPDATE endpoint_gate SET
    failures = failures + 1,
    reason = :reason,
    state = CASE WHEN state = 'paused' THEN state
                 WHEN :probe::boolean OR failures + 1 >= :threshold::integer THEN 'open' ELSE state END,
    open_until = CASE WHEN state <> 'paused' AND (:probe::boolean
                                                  OR (state = 'closed' AND failures + 1 >= :threshold::integer))
        THEN now() + least(:open_s::float8 * power(2, least(openings, 20)), :open_max_s::float8) * interval '1 second'
        ELSE open_until END,
    openings = openings + (state <> 'paused' AND (:probe::boolean
                           OR (state = 'closed' AND failures + 1 >= :threshold::integer)))::integer,
    probe_until = CASE WHEN :probe::boolean THEN NULL ELSE probe_until END,
    changed_at = now()
WHERE provider = :provider AND client_id = :client_id
RETURNING state, openings, failures, changed_at,
    CASE WHEN state = 'open' AND (:probe::boolean OR failures = :threshold::integer)
         THEN extract(epoch FROM open_until - now())::float8 END AS opened_s;
