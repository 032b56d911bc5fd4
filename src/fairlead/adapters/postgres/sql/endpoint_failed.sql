-- endpoint_failed: record that the endpoint did not answer, or answered 5xx; enough connections open its breaker (R50).
-- Takes   provider, place (the host's row), connection_id, session_id (the process with the unsent request, which may
--         be its own fault; NULL: it left), threshold (connections since the last answer), open_s, open_max_s, probe
--         (ours was the probe), reason
-- Returns opened_s: seconds for which the breaker opened by this, else null; said_by; no row if the host has
--         none
-- Locks   the host's row (endpoint_gate_lock)
-- Needs   the primary key. A connection counts once, and one with an unsent request only once two processes report
--         it; of each process as many are stored as would suffice. While it is open only a probe opens it again, for
--         twice as long, and only that of a connection and process that had not failed before: others may probe at once
WITH before AS MATERIALIZED (
    SELECT g.*, greatest(2, :threshold::integer) AS enough,
        concat_ws(' ', :connection_id::uuid, :session_id::uuid) AS word,
        (SELECT count(*) FROM unnest(g.failing) AS said WHERE split_part(said, ' ', 2) = :session_id::uuid::text) AS ours
    FROM endpoint_gate_lock(:provider, ARRAY[:place]) g
),
heard AS (
    SELECT before.*, failures < 10000 AND CASE WHEN :probe::boolean
        THEN ours = 0 AND NOT EXISTS (
            SELECT FROM unnest(failing) AS said WHERE starts_with(said, :connection_id::uuid::text))
        ELSE state = 'closed' AND ours < enough AND word <> ALL (failing) END AS counts
    FROM before
),
decided AS (
    SELECT heard.*, (state = 'open' AND :probe::boolean AND counts) OR (state = 'closed' AND agree >= enough) AS opens
    FROM heard, LATERAL (
        SELECT CASE WHEN count(DISTINCT nullif(split_part(said, ' ', 2), '')) > 1
            THEN count(DISTINCT split_part(said, ' ', 1)) ELSE count(*) FILTER (WHERE strpos(said, ' ') = 0) END AS agree
        FROM unnest(CASE WHEN counts THEN array_append(failing, word) ELSE failing END) AS said) AS tally
)
UPDATE endpoint_gate g SET
    failing = CASE WHEN d.counts THEN array_append(g.failing, d.word) ELSE g.failing END,
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
RETURNING CASE WHEN d.opens THEN extract(epoch FROM g.open_until - now())::float8 END AS opened_s,
    g.failing[1:5] AS said_by;
