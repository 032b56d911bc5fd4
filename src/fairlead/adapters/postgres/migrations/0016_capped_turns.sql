-- 0016_capped_turns: the places of a cap are kept for the lanes that a claim gives something (Q7, R17); and a full cap
--                    holds only its own suspects.
-- Phase   pre (the version before it goes on with it: these functions take and give what they did)
-- Needs   0012_call_waits. lane_rooms stays for the job_claim of 0003

-- As lane_rooms, which kept places for each lane before one, for that which gets nothing of this claim, too: shared by
-- weight, a light lane's part may be none. Where it stood first under a cap, nobody was given anything, for ever.
-- `takes`: what each would give; a lane that gives nothing still learns that its cap is full.
CREATE FUNCTION lane_places(tenants text[], groups text[], takes integer[]) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE locked tid[]; rooms integer[];
BEGIN
    SELECT array_agg(c.tid) INTO locked FROM (
        SELECT running_cap.ctid AS tid FROM running_cap
        WHERE tenant_id = ANY(''::text || tenants) AND group_key = ANY(''::text || groups)
        ORDER BY tenant_id, group_key FOR UPDATE SKIP LOCKED) AS c;
    WITH cap AS MATERIALIZED (
        SELECT c.tenant_id, c.group_key, CASE WHEN c.ctid = ANY(locked) THEN greatest(0, c.max_running - (
            CASE WHEN c.tenant_id = ''
                 THEN (SELECT count(*) FROM job j
                       WHERE j.group_key = c.group_key AND j.group_key <> '' AND j.state = 'running'
                           AND NOT is_own(j.kind))
                 ELSE (SELECT count(*) FROM job j
                       WHERE j.tenant_id = c.tenant_id AND j.state = 'running' AND NOT is_own(j.kind)
                           AND (c.group_key = '' OR j.group_key = c.group_key)) END)) END AS places
        FROM running_cap c
        WHERE c.tenant_id = ANY(''::text || tenants) AND c.group_key = ANY(''::text || groups)
    ),
    left_over AS (  -- of each cap that holds for a lane, after the lanes before it had theirs
        SELECT h.o, cap.places, cap.places - coalesce(sum(least(cap.places, h.take, 3)) OVER before, 0) AS places_left,
            coalesce(max(h.take) OVER behind, 0) = 0 AS last
        FROM unnest(tenants, groups, takes) WITH ORDINALITY AS h (tenant_id, group_key, take, o) JOIN cap
            ON (cap.tenant_id = h.tenant_id AND cap.group_key IN ('', h.group_key))
            OR (cap.tenant_id = '' AND cap.group_key = h.group_key)
        WINDOW before AS (PARTITION BY cap.tenant_id, cap.group_key ORDER BY h.o
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            behind AS (PARTITION BY cap.tenant_id, cap.group_key ORDER BY h.o
                       ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
    ),
    judged AS (
        SELECT o, CASE WHEN bool_or(places IS NULL) THEN -1
                       WHEN min(places) = 0 THEN 0
                       WHEN min(places_left) <= 0 THEN -1
                       ELSE min(CASE WHEN last THEN places_left ELSE least(places_left, 3) END) END AS room
        FROM left_over GROUP BY o
    )
    SELECT array_agg(judged.room ORDER BY h.o) INTO rooms
    FROM generate_subscripts(tenants, 1) AS h (o) LEFT JOIN judged USING (o);
    RETURN rooms;
END $$;

DO $$
DECLARE
    made text := pg_get_functiondef('job_claim_with_wait'::regproc);
    change text[];
BEGIN
    FOREACH change SLICE 1 IN ARRAY ARRAY[
        ['SELECT lane_rooms(', 'SELECT lane_places('],
        ['END ORDER BY o), want) INTO rooms', 'END ORDER BY o), takes) INTO rooms']]
    LOOP
        IF strpos(made, change[1]) = 0 THEN
            RAISE 'job_claim_with_wait has no %', change[1];
        END IF;
        made := replace(made, change[1], change[2]);
    END LOOP;
    EXECUTE made;
END $$;

-- Whether a cap of these names is full, as far as can be seen without holding it.
CREATE FUNCTION is_full(of_tenant text, of_group text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM running_cap c
        WHERE (c.tenant_id, c.group_key) IN (VALUES (of_tenant, ''), ('', of_group), (of_tenant, of_group))
            AND c.max_running <= CASE WHEN c.tenant_id = ''
                THEN (SELECT count(*) FROM job j
                      WHERE j.group_key = c.group_key AND j.group_key <> '' AND j.state = 'running'
                          AND NOT is_own(j.kind))
                ELSE (SELECT count(*) FROM job j
                      WHERE j.tenant_id = c.tenant_id AND j.state = 'running' AND NOT is_own(j.kind)
                          AND (c.group_key = '' OR j.group_key = c.group_key)) END)
$$;

-- One suspect (R3), under the same caps and pauses as everything else. Those of a full cap are passed over before the
-- first twenty are taken: they stood in the way of all others. Each cap is counted once, however many wait for it.
CREATE OR REPLACE FUNCTION job_claim_suspect(
    claimer uuid, lease_seed bigint, queues text[], kinds text[], providers text[])
RETURNS SETOF job LANGUAGE plpgsql AS $$
DECLARE suspect record;
BEGIN
    PERFORM FROM worker_session w WHERE w.session_id = claimer AND w.lost_at IS NULL AND w.stopped_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR suspect IN
        WITH due AS MATERIALIZED (
            SELECT j.ctid AS tid, is_own(j.kind) AS own, j.tenant_id, j.group_key FROM job j
            WHERE j.queue = ANY(queues) AND j.state = 'available' AND j.crash_count > 0 AND j.run_at <= now()
                AND (j.expires_at IS NULL OR j.expires_at > now())
                AND (cardinality(kinds) = 0 OR j.kind = ANY(kinds))
                AND (cardinality(providers) = 0 OR j.provider = ANY(providers))
                AND paused_until(j.queue, j.kind, coalesce(j.provider, ''), j.tenant_id, j.group_key) IS NULL
        ),
        held AS MATERIALIZED (
            SELECT tenant_id, group_key FROM (SELECT DISTINCT tenant_id, group_key FROM due WHERE NOT own) AS named
            WHERE is_full(tenant_id, group_key)
        )
        SELECT j.ctid AS tid, j.tenant_id, j.group_key, is_capped(j.kind, j.tenant_id, j.group_key) AS capped
        FROM job j
        WHERE j.ctid = ANY(ARRAY(
            SELECT due.tid FROM due
            WHERE due.own OR (due.tenant_id, due.group_key) NOT IN (SELECT held.tenant_id, held.group_key FROM held)))
        ORDER BY j.priority, j.run_at, j.job_id
        LIMIT 20 FOR UPDATE SKIP LOCKED
    LOOP
        CONTINUE WHEN suspect.capped AND (lane_places(
            ARRAY[suspect.tenant_id], ARRAY[suspect.group_key], ARRAY[1]))[1] <= 0;
        RETURN QUERY
        UPDATE job SET
            state = 'running', attempt = attempt + 1, started_at = NULL, session_id = claimer,
            lease_id = uuid_hash_extended(job_id, lease_seed) & 9223372036854775807
        WHERE ctid = suspect.tid
        RETURNING job.*;
        RETURN;
    END LOOP;
END $$;
