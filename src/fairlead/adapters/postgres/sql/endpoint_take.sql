-- endpoint_take: leave to send to one token endpoint: pause, breaker and rate in one step (R13).
-- Takes   provider, client_id, want (permits asked), per_s (NULL: no rate), burst, probe_s (a probe's time),
--         secret_fingerprint (a pause is for the secret that was refused; others pass, and it stays refused; NULL:
--         whoever asks has his pauses in another row, and lifts none here)
-- Gives   granted, level (permits left before), state, probe, dirty, retry_after_s (breaker or pause), reason;
--         no row if this endpoint was never seen
-- Locks   the endpoint's row
-- Needs   the primary key; the first one after the breaker's time is the one probe of the fleet
WITH gate AS MATERIALIZED (
    SELECT g.*,
        least(:burst::float8, g.permits + greatest(0, extract(epoch FROM now() - g.refilled_at)::float8)
            * coalesce(:per_s::float8, 0)) AS level,
        coalesce(g.secret_fingerprint = :secret_fingerprint::text, false) AS halted,
        g.state = 'open' AND (g.open_until > now() OR coalesce(g.probe_until > now(), false)) AS shut,
        g.state = 'open' AND g.open_until <= now() AND NOT coalesce(g.probe_until > now(), false) AS probing
    FROM endpoint_gate g
    WHERE g.provider = :provider AND g.client_id = :client_id
    FOR UPDATE
),
decided AS (
    SELECT gate.*,
        CASE WHEN gate.halted OR gate.shut THEN 0
             WHEN gate.probing THEN 1
             WHEN :per_s::float8 IS NULL THEN :want::integer
             ELSE greatest(0, least(:want::integer, floor(gate.level)::integer)) END AS granted
    FROM gate
)
UPDATE endpoint_gate g SET
    permits = CASE WHEN :per_s::float8 IS NULL THEN d.permits ELSE d.level - d.granted END,
    refilled_at = greatest(g.refilled_at, now()),
    probe_until = CASE WHEN d.probing THEN now() + :probe_s::float8 * interval '1 second' ELSE g.probe_until END,
    state = CASE WHEN d.state = 'paused' AND NOT d.halted AND :secret_fingerprint::text IS NOT NULL
        THEN 'closed' ELSE g.state END
FROM decided d
WHERE g.provider = d.provider AND g.client_id = d.client_id
RETURNING d.granted, d.level, d.probing AS probe, d.failures > 0 OR d.state = 'open' AS dirty, d.reason,
    CASE WHEN d.halted THEN 'pause' WHEN d.shut OR d.probing THEN 'breaker' ELSE 'rate' END AS guard,
    extract(epoch FROM greatest(d.open_until, CASE WHEN d.probe_until > now()  -- it answers long before its time is up
        THEN least(d.probe_until, now() + :probe_s::float8 / 10 * interval '1 second') END) - now())::float8
        AS retry_after_s;
