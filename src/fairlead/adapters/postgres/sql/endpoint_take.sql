-- endpoint_take: grant permission to send to one token endpoint (back-off, pause, breaker and rate: R13, R50),
-- and store an INTENT for each refresh that gets it. The intent says "about to send generation g"; it is the
-- mutex, the double check and the write-ahead record of a refresh in one write.
-- Takes   provider, app, place, bucket (the rows of the app, the host and the rate, which may be the same);
--         arrays of one length, in the order in which permits are granted: connection_ids, generations,
--         at_onces (skip its back-off), attempt_ids (NULL: no INTENT is needed), session_ids, leases_s; per_s
--         (NULL: no rate), burst, probe_s (the time of a probe), secret_fingerprint (a pause applies to the
--         secret that was rejected; others pass, and that one stays rejected; NULL: the secret is the
--         connection's own, to which no pause applies)
-- Returns for each request: held_s (its own back-off), turn (its rank among those without one), granted
--         (permits), level (permits before), guard, probe, dirty, retry_after_s (of breaker or pause), reason,
--         epoch (of its INTENT; NULL: it lost, and its permit and the probe are free again); no row if the
--         rate's row does not exist
-- Locks   the endpoint's rows (endpoint_gate_lock), then the refresh attempts in key order. Every statement
--         that locks both uses this order, and none that holds a refresh attempt waits for an endpoint. A
--         refresh attempt that another transaction has locked is lost, not waited for, so that it delays no
--         other connection of the endpoint
-- Needs   the primary keys. After the time of a breaker or pause, the first request is the only probe of the
--         fleet. The snapshot may be older than the insert of a refresh attempt, so refresh_attempt_sent checks
--         again. endpoint_gate_lock has a newer snapshot than the statement, so it may return a row that this
--         statement cannot update; the join leaves that out. Time alone takes over only what was never sent
--         (R7): phase intent without a sent_at. A process also takes over its own intent, because it has at
--         most one refresh per connection. A repeat with the same attempt_id (a commit in doubt) grants again,
--         for one more permit. The epoch is the time of the send in microseconds (trigger send_epoch_of_time),
--         above every earlier epoch of the connection and above the sequence, which a restore sets back (R51)
WITH request AS MATERIALIZED (
    SELECT request.*, b.reason, extract(epoch FROM b.retry_at - now())::float8 AS held_s,
        (count(*) FILTER (WHERE b.retry_at IS NULL) OVER (ORDER BY request.ord))::integer - 1 AS turn
    FROM unnest(:connection_ids::uuid[], :generations::bigint[], :at_onces::boolean[], :attempt_ids::uuid[],
                :session_ids::uuid[], :leases_s::float8[]) WITH ORDINALITY
        AS request (connection_id, generation, at_once, attempt_id, session_id, lease_s, ord)
    LEFT JOIN refresh_backoff b ON b.connection_id = request.connection_id AND b.generation = request.generation
        AND b.retry_at > now() AND NOT request.at_once
),
gate AS MATERIALIZED (
    SELECT g.*, coalesce(g.secret_fingerprint = :secret_fingerprint::text, false) AS is_paused
    FROM endpoint_gate_lock(:provider, ARRAY[:app, :place, :bucket]) g
    JOIN endpoint_gate USING (provider, client_id)
),
facts AS (
    SELECT
        max(least(:burst::float8, g.permits + greatest(0, extract(epoch FROM now() - g.refilled_at)::float8)
            * coalesce(:per_s::float8, 0))) FILTER (WHERE g.client_id = :bucket) AS level,
        bool_or(g.is_paused) AS is_paused,
        bool_or(g.is_paused OR g.state = 'open') AS is_closed,
        coalesce(bool_or(greatest(g.open_until, g.probe_until) > now())
            FILTER (WHERE g.is_paused OR g.state = 'open'), false) AS is_waiting,
        bool_or(g.state = 'open' OR g.is_paused OR g.failures > 0 OR cardinality(g.limited) > 0
            OR cardinality(g.refusing) > 0) AS dirty,
        (array_agg(g.reason) FILTER (WHERE g.is_paused OR g.state = 'open'))[1] AS reason,
        -- a probe mostly ends long before its time
        extract(epoch FROM max(greatest(g.open_until, CASE WHEN g.probe_until > now()
            THEN least(g.probe_until, now() + :probe_s::float8 / 10 * interval '1 second') END))
            FILTER (WHERE g.is_paused OR g.state = 'open') - now())::float8 AS retry_after_s
    FROM gate g
    HAVING bool_or(g.client_id = :bucket)
),
decision AS MATERIALIZED (
    SELECT facts.*, is_closed AND NOT is_waiting AND requests > 0 AS is_probe,
        CASE WHEN is_waiting THEN 0
             WHEN is_closed THEN least(1, requests)
             WHEN :per_s::float8 IS NULL THEN requests
             ELSE greatest(0, least(requests, floor(level)::integer)) END AS granted
    FROM facts, (SELECT count(*) FILTER (WHERE held_s IS NULL)::integer AS requests FROM request) AS unblocked
),
admitted_request AS MATERIALIZED (
    SELECT request.* FROM request, decision WHERE request.held_s IS NULL AND request.turn < decision.granted
),
lockable_attempt AS MATERIALIZED (  -- refresh attempts that no other transaction has locked
    SELECT r.connection_id FROM refresh_attempt r, (SELECT count(*) FROM admitted_request) AS admission_count
    WHERE r.connection_id = ANY(:connection_ids::uuid[])
    ORDER BY r.connection_id FOR UPDATE OF r SKIP LOCKED
),
new_intent AS (
    INSERT INTO refresh_attempt AS attempt (connection_id, tenant_id, attempt_id, from_generation, epoch, phase,
                                  session_id, lease_until)
    SELECT DISTINCT ON (cr.connection_id) cr.connection_id, cr.tenant_id, admitted_request.attempt_id,
        admitted_request.generation,
           greatest(nextval('send_epoch'), cr.settled_epoch + 1), 'intent', admitted_request.session_id,
           now() + admitted_request.lease_s * interval '1 second'
    FROM admitted_request
    JOIN credential cr USING (connection_id)
    LEFT JOIN refresh_attempt r USING (connection_id)
    LEFT JOIN lockable_attempt USING (connection_id)
    WHERE admitted_request.attempt_id IS NOT NULL AND cr.generation = admitted_request.generation
        AND cr.state IN ('active', 'unknown')
        AND (r.connection_id IS NULL OR lockable_attempt.connection_id IS NOT NULL)
    ORDER BY cr.connection_id, admitted_request.ord
    ON CONFLICT (connection_id) DO UPDATE SET
        attempt_id = excluded.attempt_id, from_generation = excluded.from_generation,
        epoch = excluded.epoch, phase = 'intent', session_id = excluded.session_id,
        lease_until = excluded.lease_until, started_at = now(), sent_at = NULL, replays = 0, reason = NULL
    WHERE attempt.from_generation < excluded.from_generation
        OR (attempt.phase = 'intent' AND attempt.attempt_id = excluded.attempt_id)
        OR (attempt.phase = 'intent' AND attempt.sent_at IS NULL
            AND (attempt.lease_until < now() OR attempt.session_id = excluded.session_id OR NOT EXISTS (
                SELECT FROM worker_session s
                WHERE s.session_id = attempt.session_id AND s.lost_at IS NULL AND s.stopped_at IS NULL)))
    RETURNING attempt.attempt_id, attempt.epoch
),
usage AS MATERIALIZED (
    SELECT (SELECT count(*) FROM new_intent) + count(*) FILTER (WHERE attempt_id IS NULL) AS permits FROM admitted_request
),
updated_gate AS (
    UPDATE endpoint_gate g SET
        permits = CASE WHEN g.client_id = :bucket AND :per_s::float8 IS NOT NULL
            THEN decision.level - usage.permits ELSE g.permits END,
        refilled_at = CASE WHEN g.refilled_at > now() + interval '1 minute' THEN now()  -- the clock was set back
            ELSE greatest(g.refilled_at, now()) END,
        probe_until = CASE WHEN decision.is_probe AND usage.permits > 0 AND (gate.is_paused OR g.state = 'open')
            THEN now() + :probe_s::float8 * interval '1 second' ELSE g.probe_until END,
        state = CASE WHEN g.state = 'paused' AND NOT gate.is_paused AND :secret_fingerprint::text IS NOT NULL
            THEN 'closed' ELSE g.state END
    FROM decision, gate, usage
    WHERE g.provider = gate.provider AND g.client_id = gate.client_id
        AND (g.client_id = :bucket OR g.state <> 'closed' OR decision.dirty)
)
SELECT request.ord, request.held_s, request.turn, decision.granted, decision.level, decision.is_probe AS probe,
    decision.dirty, decision.retry_after_s,
    CASE WHEN decision.is_paused THEN 'pause' WHEN decision.is_closed THEN 'breaker' ELSE 'rate' END AS guard,
    coalesce(request.reason, decision.reason) AS reason, new_intent.epoch
FROM decision, request LEFT JOIN new_intent USING (attempt_id)
ORDER BY request.ord;
