-- endpoint_pause: record that the provider rejected the client id or secret of one connection. Two such
-- connections pause their host, and two paused hosts pause the app (R50).
-- Takes   provider, app, place (row names, which may be the same), host, connection_id, secret_fingerprint,
--         reason, probe (this was the probe), open_max_s (then one connection may try again)
-- Returns client_id (the row), for_s, news, said_by of each row that is paused for this secret; the widest
--         scope first
-- Locks   the endpoint's rows (endpoint_gate_lock)
-- Needs   the primary key. A token for the same secret restarts the count (endpoint_healthy). Only the probe of
--         a connection that was not rejected before extends the pause, because others may probe at once. The
--         last hundred rejected connections are stored
WITH gate AS MATERIALIZED (
    SELECT g.client_id, g.secret_fingerprint IS NOT DISTINCT FROM :secret_fingerprint::text AS is_paused,
        ARRAY(SELECT entry FROM unnest(g.refusing) AS entry
            WHERE starts_with(entry, :secret_fingerprint::text || ' ')) AS refusing
    FROM endpoint_gate_lock(:provider, ARRAY[:app, :place]) g
),
reported_gate AS (
    SELECT gate.*, :secret_fingerprint::text || ' ' || CASE
        WHEN client_id = :place OR is_paused THEN :connection_id::uuid::text ELSE :host END AS report
    FROM gate
),
judged_gate AS (  -- a host counts towards the app's pause only once it is paused itself
    SELECT reported_gate.*, report <> ALL (refusing) AND (client_id = :place OR is_paused OR (
        SELECT host_gate.is_paused OR cardinality(array_remove(host_gate.refusing, host_gate.report)) > 0
            FROM reported_gate host_gate
            WHERE host_gate.client_id = :place)) AS is_new
    FROM reported_gate
),
changed_gate AS (
    UPDATE endpoint_gate g SET
        refusing = reports[greatest(1, cardinality(reports) - 99):],
        state = CASE WHEN is_pausing THEN 'paused' ELSE g.state END,
        reason = CASE WHEN is_pausing THEN :reason ELSE g.reason END,
        secret_fingerprint = CASE WHEN is_pausing THEN :secret_fingerprint ELSE g.secret_fingerprint END,
        open_until = CASE WHEN is_pausing AND (NOT is_paused OR is_new AND :probe::boolean)
            THEN now() + :open_max_s::float8 * interval '1 second' ELSE g.open_until END,
        probe_until = CASE WHEN NOT :probe::boolean AND (is_paused OR NOT is_pausing) THEN g.probe_until END,
        changed_at = CASE WHEN is_pausing AND NOT is_paused THEN now() ELSE g.changed_at END
    FROM (
        SELECT judged_gate.*, reports, is_paused OR cardinality(reports) > 1 AS is_pausing
        FROM judged_gate, LATERAL (SELECT CASE WHEN is_new THEN array_append(refusing, report)
            ELSE refusing END AS reports) AS extended
    ) AS decided
    WHERE g.provider = :provider AND g.client_id = decided.client_id
    RETURNING g.client_id, g.open_until, is_pausing, NOT is_paused AS news, reports[1:5] AS said_by
)
SELECT client_id, greatest(0, extract(epoch FROM open_until - now())::float8) AS for_s, news, said_by
FROM changed_gate WHERE is_pausing ORDER BY length(client_id);
