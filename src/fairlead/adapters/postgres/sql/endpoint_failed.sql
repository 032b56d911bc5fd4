-- endpoint_failed: the endpoint did not answer, or with a 5xx; enough connections that say so open its breaker (R50).
-- Takes   provider, place (the host's row), connection_id, threshold (connections since the last answer), open_s,
--         open_max_s, probe (ours was the probe), reason
-- Gives   opened_s: how long it is open for if the breaker opened by this, else null; no row if the host has none
-- Locks   the host's row
-- Needs   the primary key; a connection counts once. While it is open only a probe opens it again, for twice as long,
--         and only that of a connection that had not failed before: others may probe at once. failing has a bound
WITH before AS MATERIALIZED (
    SELECT g.*, (g.state = 'closed' OR :probe::boolean) AND g.failures < 10000
            AND :connection_id::uuid <> ALL (g.failing) AS counts
    FROM endpoint_gate g WHERE g.provider = :provider AND g.client_id = :place FOR UPDATE
),
decided AS (
    SELECT before.*, (state = 'open' AND :probe::boolean AND counts)
        OR (state = 'closed' AND failures + counts::integer >= greatest(2, :threshold::integer)) AS opens
    FROM before
)
UPDATE endpoint_gate g SET
    failing = CASE WHEN d.counts THEN array_append(g.failing, :connection_id::uuid) ELSE g.failing END,
    failures = g.failures + d.counts::integer,
    reason = :reason,
    state = CASE WHEN d.opens THEN 'open' ELSE g.state END,
    open_until = CASE WHEN d.opens
        THEN now() + least(:open_s::float8 * power(2, least(g.openings, 20)), :open_max_s::float8) * interval '1 second'
        ELSE g.open_until END,
    openings = g.openings + d.opens::integer,
    probe_until = CASE WHEN :probe::boolean THEN NULL ELSE g.probe_until END,
    changed_at = now()
FROM decided d WHERE g.provider = d.provider AND g.client_id = d.client_id
RETURNING CASE WHEN d.opens THEN extract(epoch FROM g.open_until - now())::float8 END AS opened_s;
