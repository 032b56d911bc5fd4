-- endpoint_take: permission to send to one token endpoint (back-off, pause, breaker and rate: R13, R50), and INTENT, "about
--         to send generation g", of those that get it: mutex, double-check and write-ahead of a refresh in one write.
-- Takes   provider, app, place, bucket (the names of the app's, the host's and the rate's row, which may be one); arrays
--         of one length, in the order in which permits are given: connection_ids, generations, at_onces (no back-off
--         holds it), attempt_ids (NULL: no INTENT is wanted), session_ids, leases_s;
--         per_s (NULL: no rate), burst, probe_s (a probe's time), secret_fingerprint (a pause is for the secret that was refused; others pass,
--         and it stays refused; NULL: the secret is the connection's own, which no pause applies to)
-- Returns for each asked: held_s (its own back-off), turn among those without, granted (permits), level (permits left
--         before), guard, probe, dirty, retry_after_s (breaker or pause), reason, epoch (of its INTENT; NULL: lost, its
--         permit and the place of the probe are free again); no row if the rate's row is not there
-- Locks   the endpoint's rows (endpoint_gate_lock), then the refresh attempts, in key order: every statement that locks both does so
--         in this order, and none that holds a refresh attempt asks for an endpoint. A refresh attempt that others hold is lost and
--         not waited for, so that it holds up no other connection of the endpoint
-- Needs   the primary keys; after the time of a breaker or pause the first one is the one probe of the fleet.
--         A snapshot may be older than the insert, so refresh_attempt_sent looks again. endpoint_gate_lock has a newer snapshot than
--         the statement: a row that was inserted between the two could be read, but not written. The join leaves it out.
--         Time alone takes over only what was never sent (R7): phase intent without a sent_at.
--         A process takes over its own intent too: it has one flight per connection at most.
--         Asked again with the same attempt_id (a commit in doubt) it grants again, for one more permit.
--         The epoch is the time of the send in microseconds (trigger send_epoch_of_time), raised above every earlier
--         epoch of the connection and the sequence: that counts from before again after a restore, and time goes on (R51).
WITH asked AS MATERIALIZED (
    SELECT a.*, b.reason, extract(epoch FROM b.retry_at - now())::float8 AS held_s,
        (count(*) FILTER (WHERE b.retry_at IS NULL) OVER (ORDER BY a.ord))::integer - 1 AS turn
    FROM unnest(:connection_ids::uuid[], :generations::bigint[], :at_onces::boolean[], :attempt_ids::uuid[],
                :session_ids::uuid[], :leases_s::float8[]) WITH ORDINALITY
        AS a (connection_id, generation, at_once, attempt_id, session_id, lease_s, ord)
    LEFT JOIN refresh_backoff b ON b.connection_id = a.connection_id AND b.generation = a.generation
        AND b.retry_at > now() AND NOT a.at_once
),
gates AS MATERIALIZED (
    SELECT g.*, coalesce(g.secret_fingerprint = :secret_fingerprint::text, false) AS halted
    FROM endpoint_gate_lock(:provider, ARRAY[:app, :place, :bucket]) g
    JOIN endpoint_gate USING (provider, client_id)
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
decided AS MATERIALIZED (
    SELECT facts.*, closed AND NOT shut AND free > 0 AS probing,
        CASE WHEN shut THEN 0
             WHEN closed THEN least(1, free)
             WHEN :per_s::float8 IS NULL THEN free
             ELSE greatest(0, least(free, floor(level)::integer)) END AS granted
    FROM facts, (SELECT count(*) FILTER (WHERE held_s IS NULL)::integer AS free FROM asked) AS waiting
),
admitted AS MATERIALIZED (
    SELECT asked.* FROM asked, decided d WHERE asked.held_s IS NULL AND asked.turn < d.granted
),
idle AS MATERIALIZED (  -- rotations that nobody else holds at the moment
    SELECT r.connection_id FROM refresh_attempt r, (SELECT count(*) FROM admitted) AS first
    WHERE r.connection_id = ANY(:connection_ids::uuid[])
    ORDER BY r.connection_id FOR UPDATE OF r SKIP LOCKED
),
claimed AS (
    INSERT INTO refresh_attempt AS held (connection_id, tenant_id, attempt_id, from_generation, epoch, phase,
                                  session_id, lease_until)
    SELECT DISTINCT ON (cr.connection_id) cr.connection_id, cr.tenant_id, a.attempt_id, a.generation,
           greatest(nextval('send_epoch'), cr.settled_epoch + 1), 'intent', a.session_id,
           now() + a.lease_s * interval '1 second'
    FROM admitted a
    JOIN credential cr USING (connection_id)
    LEFT JOIN refresh_attempt r USING (connection_id)
    LEFT JOIN idle USING (connection_id)
    WHERE a.attempt_id IS NOT NULL AND cr.generation = a.generation AND cr.state IN ('active', 'unknown')
        AND (r.connection_id IS NULL OR idle.connection_id IS NOT NULL)
    ORDER BY cr.connection_id, a.ord
    ON CONFLICT (connection_id) DO UPDATE SET
        attempt_id = excluded.attempt_id, from_generation = excluded.from_generation,
        epoch = excluded.epoch, phase = 'intent', session_id = excluded.session_id,
        lease_until = excluded.lease_until, started_at = now(), sent_at = NULL, replays = 0, reason = NULL
    WHERE held.from_generation < excluded.from_generation
        OR (held.phase = 'intent' AND held.attempt_id = excluded.attempt_id)
        OR (held.phase = 'intent' AND held.sent_at IS NULL
            AND (held.lease_until < now() OR held.session_id = excluded.session_id OR NOT EXISTS (
                SELECT FROM worker_session s
                WHERE s.session_id = held.session_id AND s.lost_at IS NULL AND s.stopped_at IS NULL)))
    RETURNING held.attempt_id, held.epoch
),
used AS MATERIALIZED (
    SELECT (SELECT count(*) FROM claimed) + count(*) FILTER (WHERE attempt_id IS NULL) AS permits FROM admitted
),
taken AS (
    UPDATE endpoint_gate g SET
        permits = CASE WHEN g.client_id = :bucket AND :per_s::float8 IS NOT NULL
            THEN d.level - used.permits ELSE g.permits END,
        refilled_at = CASE WHEN g.refilled_at > now() + interval '1 minute' THEN now()  -- the clock was set back
            ELSE greatest(g.refilled_at, now()) END,
        probe_until = CASE WHEN d.probing AND used.permits > 0 AND (gates.halted OR g.state = 'open')
            THEN now() + :probe_s::float8 * interval '1 second' ELSE g.probe_until END,
        state = CASE WHEN g.state = 'paused' AND NOT gates.halted AND :secret_fingerprint::text IS NOT NULL
            THEN 'closed' ELSE g.state END
    FROM decided d, gates, used
    WHERE g.provider = gates.provider AND g.client_id = gates.client_id
        AND (g.client_id = :bucket OR g.state <> 'closed' OR d.dirty)
)
SELECT asked.ord, asked.held_s, asked.turn, d.granted, d.level, d.probing AS probe, d.dirty, d.retry_after_s,
    CASE WHEN d.halted THEN 'pause' WHEN d.closed THEN 'breaker' ELSE 'rate' END AS guard,
    coalesce(asked.reason, d.reason) AS reason, claimed.epoch
FROM decided d, asked LEFT JOIN claimed USING (attempt_id)
ORDER BY asked.ord;
