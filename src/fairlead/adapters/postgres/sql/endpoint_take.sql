-- endpoint_take: permission to send to one token endpoint: back-off, pause, breaker and rate in one step (R13, R50).
-- Takes   provider, app, place, bucket (the names of the app's, the host's and the rate's row, which may be one),
--         connection_ids, generations (who asks, in the order in which permits are given; NULL: no back-off holds it),
--         per_s (NULL: no rate), burst, probe_s (a probe's time), secret_fingerprint (a pause is for the secret that was refused; others pass,
--         and it stays refused; NULL: the secret is the connection's own, which no pause applies to)
-- Gives   for each asked: held_s (its own back-off), turn among those without, granted (permits), level (permits left
--         before), guard, probe, dirty, retry_after_s (breaker or pause), reason; no row if the rate's row is not there
-- Locks   the endpoint's rows (endpoint_gates)
-- Needs   the primary keys; after the time of a breaker or pause the first one is the one probe of the fleet
WITH asked AS (
    SELECT a.ord, b.reason, extract(epoch FROM b.retry_at - now())::float8 AS held_s
    FROM unnest(:connection_ids::uuid[], :generations::bigint[]) WITH ORDINALITY AS a (connection_id, generation, ord)
    LEFT JOIN refresh_backoff b
        ON b.connection_id = a.connection_id AND b.generation = a.generation AND b.retry_at > now()
),
gates AS MATERIALIZED (
    SELECT g.*, coalesce(g.secret_fingerprint = :secret_fingerprint::text, false) AS halted
    FROM endpoint_gates(:provider, ARRAY[:app, :place, :bucket]) g
),
facts AS (
    SELECT
        max(least(:burst::float8, g.permits + greatest(0, extract(epoch FROM now() - g.refilled_at)::float8)
            * coalesce(:per_s::float8, 0))) FILTER (WHERE g.client_id = :bucket) AS level,
        bool_or(g.halted) AS halted,
        bool_or(g.halted OR g.state = 'open') AS closed,
        coalesce(bool_or(greatest(g.open_until, g.probe_until) > now())
            FILTER (WHERE g.halted OR g.state = 'open'), false) AS shut,
        bool_or(g.state = 'open' OR g.halted OR g.failures > 0 OR cardinality(g.limited) > 0
            OR cardinality(g.refusing) > 0) AS dirty,
        (array_agg(g.reason) FILTER (WHERE g.halted OR g.state = 'open'))[1] AS reason,
        extract(epoch FROM max(greatest(g.open_until, CASE WHEN g.probe_until > now()  -- it answers long before its time
            THEN least(g.probe_until, now() + :probe_s::float8 / 10 * interval '1 second') END))
            FILTER (WHERE g.halted OR g.state = 'open') - now())::float8 AS retry_after_s
    FROM gates g
    HAVING bool_or(g.client_id = :bucket)
),
decided AS (
    SELECT facts.*, closed AND NOT shut AND free > 0 AS probing,
        CASE WHEN shut THEN 0
             WHEN closed THEN least(1, free)
             WHEN :per_s::float8 IS NULL THEN free
             ELSE greatest(0, least(free, floor(level)::integer)) END AS granted
    FROM facts, (SELECT count(*) FILTER (WHERE held_s IS NULL)::integer AS free FROM asked) AS waiting
),
taken AS (
    UPDATE endpoint_gate g SET
        permits = CASE WHEN g.client_id = :bucket AND :per_s::float8 IS NOT NULL
            THEN d.level - d.granted ELSE g.permits END,
        refilled_at = CASE WHEN g.refilled_at > now() + interval '1 minute' THEN now()  -- the clock was set back
            ELSE greatest(g.refilled_at, now()) END,
        probe_until = CASE WHEN d.probing AND (gates.halted OR g.state = 'open')
            THEN now() + :probe_s::float8 * interval '1 second' ELSE g.probe_until END,
        state = CASE WHEN g.state = 'paused' AND NOT gates.halted AND :secret_fingerprint::text IS NOT NULL
            THEN 'closed' ELSE g.state END
    FROM decided d, gates
    WHERE g.provider = gates.provider AND g.client_id = gates.client_id
        AND (g.client_id = :bucket OR g.state <> 'closed' OR d.dirty)
)
SELECT asked.ord, asked.held_s, (count(*) FILTER (WHERE asked.held_s IS NULL) OVER (ORDER BY asked.ord))::integer - 1 AS turn,
    d.granted, d.level, d.probing AS probe, d.dirty, d.retry_after_s,
    CASE WHEN d.halted THEN 'pause' WHEN d.closed THEN 'breaker' ELSE 'rate' END AS guard,
    coalesce(asked.reason, d.reason) AS reason
FROM asked, decided d
ORDER BY asked.ord;
