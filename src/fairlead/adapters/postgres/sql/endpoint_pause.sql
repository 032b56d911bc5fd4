-- endpoint_pause: the provider refused the client id or secret to one connection; to two at this host, or at two hosts,
--         it pauses the host, or the app (R50).
-- Takes   provider, app, place (row names, which may be one), host, connection_id, secret_fingerprint, reason,
--         open_max_s (then one connection may try again)
-- Gives   client_id (the row), for_s, news of what is paused for this secret; the widest first
-- Locks   the endpoint's rows, by name
-- Needs   the primary key; a token given to the same secret in between starts the count again (endpoint_healthy)
WITH gates AS MATERIALIZED (
    SELECT g.client_id, g.secret_fingerprint IS NOT DISTINCT FROM :secret_fingerprint::text AS halted,
        array_append(array_remove(ARRAY(SELECT said FROM unnest(g.refusing) AS said
            WHERE starts_with(said, :secret_fingerprint::text || ' ')), word), word) AS refusing
    FROM endpoint_gate g CROSS JOIN LATERAL (SELECT :secret_fingerprint::text || ' ' || CASE
        WHEN g.client_id = :place THEN :connection_id::uuid::text ELSE :host END AS word) AS ours
    WHERE g.provider = :provider AND g.client_id IN (:app, :place)
    ORDER BY g.client_id FOR UPDATE OF g
),
changed AS (
    UPDATE endpoint_gate g SET
        refusing = gates.refusing[1:2],
        state = CASE WHEN closes THEN 'paused' ELSE g.state END,
        reason = CASE WHEN closes THEN :reason ELSE g.reason END,
        secret_fingerprint = CASE WHEN closes THEN :secret_fingerprint ELSE g.secret_fingerprint END,
        open_until = CASE WHEN closes THEN now() + :open_max_s::float8 * interval '1 second' ELSE g.open_until END,
        probe_until = CASE WHEN closes THEN NULL ELSE g.probe_until END,
        changed_at = CASE WHEN closes AND NOT gates.halted THEN now() ELSE g.changed_at END
    FROM gates, LATERAL (SELECT gates.halted OR cardinality(gates.refusing) > 1 AS closes) AS decided
    WHERE g.provider = :provider AND g.client_id = gates.client_id
    RETURNING g.client_id, closes, NOT gates.halted AS news
)
SELECT client_id, :open_max_s::float8 AS for_s, news FROM changed WHERE closes ORDER BY length(client_id);
