-- endpoint_failed: record that an endpoint sent no response or a 5xx; enough connections open its breaker
-- (R50).
-- Takes   provider, place (the host's row), connection_id, session_id (the process, if its request was not
--         sent, which may be its own fault; NULL: it was sent), threshold (connections since the last
--         response), open_s, open_max_s, probe (this was the probe), reason
-- Returns opened_s: the seconds for which this failure opened the breaker, or NULL; said_by: up to five
--         reporters; no row if the host has none
-- Locks   the host's row (endpoint_gate_lock)
-- Needs   the primary key. A connection counts once, and an unsent request only if two processes report one; of
--         each process only as many reports are stored as are needed. While the breaker is open, only a failed
--         probe opens it again, for twice as long, and only if neither its connection nor its process had
--         failed before, because others may probe at once
WITH gate AS MATERIALIZED (
    SELECT g.*, greatest(2, :threshold::integer) AS quorum,
        concat_ws(' ', :connection_id::uuid, :session_id::uuid) AS report,
        (SELECT count(*) FROM unnest(g.failing) AS entry
            WHERE split_part(entry, ' ', 2) = :session_id::uuid::text) AS own_reports
    FROM endpoint_gate_lock(:provider, ARRAY[:place]) g
),
judged_gate AS (
    SELECT gate.*, failures < 10000 AND CASE WHEN :probe::boolean
        THEN own_reports = 0 AND NOT EXISTS (
            SELECT FROM unnest(failing) AS entry WHERE starts_with(entry, :connection_id::uuid::text))
        ELSE state = 'closed' AND own_reports < quorum AND report <> ALL (failing) END AS is_counted
    FROM gate
),
decision AS (
    SELECT judged_gate.*, (state = 'open' AND :probe::boolean AND is_counted)
        OR (state = 'closed' AND reporters >= quorum) AS is_opening
    FROM judged_gate, LATERAL (
        SELECT CASE WHEN count(DISTINCT nullif(split_part(entry, ' ', 2), '')) > 1
            THEN count(DISTINCT split_part(entry, ' ', 1))
                ELSE count(*) FILTER (WHERE strpos(entry, ' ') = 0) END AS reporters
        FROM unnest(CASE WHEN is_counted THEN array_append(failing, report) ELSE failing END) AS entry) AS tally
)
UPDATE endpoint_gate g SET
    failing = CASE WHEN d.is_counted THEN array_append(g.failing, d.report) ELSE g.failing END,
    failures = g.failures + d.is_counted::integer,
    reason = :reason,
    state = CASE WHEN d.is_opening THEN 'open' ELSE g.state END,
    open_until = CASE WHEN d.is_opening
        THEN now() + least(:open_s::float8 * power(2, least(g.openings, 20)), :open_max_s::float8) * interval '1 second'
        ELSE g.open_until END,
    openings = g.openings + d.is_opening::integer,
    probe_until = CASE WHEN :probe::boolean THEN NULL ELSE g.probe_until END,
    changed_at = now()
FROM decision d WHERE g.provider = d.provider AND g.client_id = d.client_id
RETURNING CASE WHEN d.is_opening THEN extract(epoch FROM g.open_until - now())::float8 END AS opened_s,
    g.failing[1:5] AS said_by;
