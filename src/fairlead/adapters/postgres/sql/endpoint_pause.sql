-- endpoint_pause: record that the provider refused the client id or secret of one connection; two connections pause
--         their host, and two paused hosts pause the app (R50).
-- Takes   provider, app, place (row names, which may be one), host, connection_id, secret_fingerprint, reason, probe
--         (ours was the probe), open_max_s (then one connection may try again)
-- Returns client_id (the row), for_s, news, said_by of what is paused for this secret; the widest first
-- Locks   the endpoint's rows (endpoint_gate_lock)
-- Needs   the primary key; a token given to the same secret in between starts the count again (endpoint_healthy). Only
--         the probe of a connection that was not refused before keeps it paused for longer: others may probe at once.
--         The last hundred refused connections are stored
WITH gates AS MATERIALIZED (
    SELECT g.client_id, g.secret_fingerprint IS NOT DISTINCT FROM :secret_fingerprint::text AS halted,
        ARRAY(SELECT said FROM unnest(g.refusing) AS said
            WHERE starts_with(said, :secret_fingerprint::text || ' ')) AS refusing
    FROM endpoint_gate_lock(:provider, ARRAY[:app, :place]) g
),
words AS (
    SELECT gates.*, :secret_fingerprint::text || ' ' || CASE
        WHEN client_id = :place OR halted THEN :connection_id::uuid::text ELSE :host END AS word
    FROM gates
),
heard AS (  -- a host counts for the app only once it is paused
    SELECT words.*, word <> ALL (refusing) AND (client_id = :place OR halted OR (
        SELECT p.halted OR cardinality(array_remove(p.refusing, p.word)) > 0 FROM words p
            WHERE p.client_id = :place)) AS fresh
    FROM words
),
changed AS (
    UPDATE endpoint_gate g SET
        refusing = told[greatest(1, cardinality(told) - 99):],
        state = CASE WHEN closes THEN 'paused' ELSE g.state END,
        reason = CASE WHEN closes THEN :reason ELSE g.reason END,
        secret_fingerprint = CASE WHEN closes THEN :secret_fingerprint ELSE g.secret_fingerprint END,
        open_until = CASE WHEN closes AND (NOT halted OR fresh AND :probe::boolean)
            THEN now() + :open_max_s::float8 * interval '1 second' ELSE g.open_until END,
        probe_until = CASE WHEN NOT :probe::boolean AND (halted OR NOT closes) THEN g.probe_until END,
        changed_at = CASE WHEN closes AND NOT halted THEN now() ELSE g.changed_at END
    FROM (
        SELECT heard.*, told, halted OR cardinality(told) > 1 AS closes
        FROM heard, LATERAL (SELECT CASE WHEN fresh THEN array_append(refusing, word) ELSE refusing END AS told) AS all_of
    ) AS decided
    WHERE g.provider = :provider AND g.client_id = decided.client_id
    RETURNING g.client_id, g.open_until, closes, NOT halted AS news, told[1:5] AS said_by
)
SELECT client_id, greatest(0, extract(epoch FROM open_until - now())::float8) AS for_s, news, said_by
FROM changed WHERE closes ORDER BY length(client_id);
