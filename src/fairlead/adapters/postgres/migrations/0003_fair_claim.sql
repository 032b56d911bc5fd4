-- 0003_fair_claim: jobs handed out lane by lane, under exact caps (Q2, Q6, R16-R18).
-- Phase   pre (the version before it goes on with its own claim)
-- Needs   0002_lanes

-- What caps leave to each of these lanes; NULL where no cap holds or the names are NULL, 0 where there is no place left, -1 where another
-- claim counts at this moment or the lanes before it may take what is left. The caps' rows stay locked to the end of
-- the transaction, and what runs is counted by a later snapshot: so the places are exact.
CREATE FUNCTION lane_rooms(tenants text[], groups text[], want integer) RETURNS integer[] LANGUAGE plpgsql AS $$
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
        SELECT h.ordinality AS o, cap.places, least(cap.places, want) AS mine, cap.places - coalesce(
            sum(least(cap.places, want, 3)) OVER (PARTITION BY cap.tenant_id, cap.group_key ORDER BY h.ordinality
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS places_left,
            lead(h.ordinality) OVER (PARTITION BY cap.tenant_id, cap.group_key ORDER BY h.ordinality) IS NULL AS last
        FROM unnest(tenants, groups) WITH ORDINALITY AS h (tenant_id, group_key, ordinality) JOIN cap
            ON (cap.tenant_id = h.tenant_id AND cap.group_key IN ('', h.group_key))
            OR (cap.tenant_id = '' AND cap.group_key = h.group_key)
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

-- The next four functions are for claims that hold lanes of which some are of one tenant, or whose weights differ.
-- Lanes of a tenant stand in one line, which gets no more than a single lane would (R16): the first of them gives jobs
-- until the virtual time at which the next one stands, then goes to the end. `last` is where the tenant's last lane
-- stands, held or not; if all are held, they share what their line may give.
CREATE FUNCTION lane_lines(held tid[], lasts bigint[]) RETURNS TABLE (
    o bigint, line bigint, place bigint, size bigint, start bigint, step bigint, past bigint, last bigint, rest boolean)
LANGUAGE sql STABLE AS $$
    WITH lined AS (
        SELECT h.o, h.last, lane.queue, lane.level, lane.vtime, lane.tenant_id, lane.stride::float8, max(h.last) OVER w AS last_of_all,
            row_number() OVER w AS place, count(*) OVER w AS size, min(lane.vtime) OVER w AS start,
            lead(lane.vtime) OVER (PARTITION BY lane.tenant_id ORDER BY lane.vtime, h.o) AS next,
            1 / lane.stride::float8 / count(*) OVER w AS part
        FROM unnest(held, lasts) WITH ORDINALITY AS h (tid, last, o) JOIN lane ON lane.ctid = h.tid
        WINDOW w AS (PARTITION BY lane.tenant_id ORDER BY lane.vtime, h.o
                     ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
    ),
    bounded AS (  -- nobody gets more than three for one of all the others, whatever the weights
        SELECT lined.*, CASE
            WHEN size = cardinality(held) OR 3 * (sum(part) OVER () - size * part) >= size * part THEN stride
            ELSE round(1 / (sum(part) OVER () - size * part) / 3) END::bigint AS step
        FROM lined
    )
    SELECT o, dense_rank() OVER (ORDER BY start, tenant_id), place - 1, size, start, step,
        greatest(coalesce(next, (
            SELECT l.vtime FROM lane l
            WHERE l.queue = bounded.queue AND l.level = bounded.level AND l.tenant_id = bounded.tenant_id
                AND l.state = 'ready' AND l.vtime > bounded.vtime
            ORDER BY l.vtime LIMIT 1), vtime + 3 * step), start + step * place),  -- at least one job of each
        last_of_all, last_of_all > max(vtime) OVER (PARTITION BY tenant_id)
    FROM bounded
$$;

-- For each line, in the order of their starts: where it starts, and the charge of a job. And how far all may go: who
-- stands behind a line is not known.
CREATE FUNCTION lane_starts(held tid[], lasts bigint[], OUT starts bigint[], OUT steps bigint[], OUT bound bigint)
LANGUAGE sql STABLE AS $$
    SELECT array_agg(start ORDER BY line) FILTER (WHERE place = 0),
        array_agg(step ORDER BY line) FILTER (WHERE place = 0),
        min(past) FILTER (WHERE rest AND place = size - 1)
    FROM lane_lines(held, lasts)
$$;

-- How many jobs each lane gives of what its line may give, the virtual time of the first, and from one to the next.
CREATE FUNCTION lane_shares(held tid[], lasts bigint[], line_takes integer[],
    OUT takes integer[], OUT bases bigint[], OUT steps bigint[]) LANGUAGE sql STABLE AS $$
    SELECT array_agg(CASE WHEN rest THEN till - since
                          ELSE given / size + (place < given % size)::integer END::integer ORDER BY o),
        array_agg(start + step * CASE WHEN rest THEN since ELSE place END ORDER BY o),
        array_agg(step * CASE WHEN rest THEN 1 ELSE size END ORDER BY o)
    FROM (
        SELECT l.*, coalesce(lag(till) OVER (PARTITION BY line ORDER BY place), 0) AS since
        FROM (
            SELECT *, line_takes[line] AS given, least(line_takes[line], (past - start) / step) AS till
            FROM lane_lines(held, lasts)) AS l) AS line
$$;

-- Where each lane stands after it gave so many.
CREATE FUNCTION lane_afters(held tid[], lasts bigint[], line_takes integer[], given integer[]) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(CASE
        WHEN NOT rest THEN start + step * jobs + 3 * step * place
        -- one that has not come to its end stays in front
        WHEN line_takes[line] < (past - start) / step THEN start + step * line_takes[line]
        ELSE last + 3 * step * (place + 1) END ORDER BY o)
    FROM (SELECT l.*, sum(given[o]) OVER (PARTITION BY line)::bigint AS jobs FROM lane_lines(held, lasts) AS l) AS line
$$;

-- Whether nobody else is at a job whose row has a mark. If nobody is, it is the caller's.
CREATE FUNCTION job_is_free(marked tid) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT true FROM job WHERE ctid = marked FOR UPDATE SKIP LOCKED
$$;

-- When the next job of a lane is due that has nothing due now.
CREATE FUNCTION lane_next_at(of_lane uuid) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT run_at FROM job
    WHERE lane_id = of_lane AND state = 'available' AND crash_count = 0
        AND run_at > now() AND (expires_at IS NULL OR expires_at > now())
    ORDER BY run_at LIMIT 1
$$;

-- Claim up to `demand` due jobs, lane by lane: classes strictly, within a class by virtual time. The order of the
-- rows is the order to start them in. With `wake`, lanes whose time has come are made ready first. Several statements,
-- because a cap is exact only if what runs is counted by a snapshot taken after the cap's row was locked (READ
-- COMMITTED, R17); and small ones with arrays between them, because one statement that does it all costs as much to set
-- up as to carry out.
--
-- Jobs are not locked before they are updated: who holds a lane is the only claimer there. Somebody else may be at a
-- job all the same (a cancel, a raised priority); such a row has a mark (xmax), and is passed over if it is locked.
CREATE FUNCTION job_claim(
    claimer uuid, lease_seed bigint, queues text[], kinds text[], providers text[], demand integer, wake boolean)
RETURNS TABLE (
    job_id uuid, lease_id bigint, queue text, kind text, tenant_id text, provider text, group_key text,
    priority smallint, attempt integer, crash_count smallint, args jsonb, streaks jsonb, replay_of uuid,
    created_at timestamptz, waited_s float8
) LANGUAGE plpgsql
-- all that is read here are short ranges of indexes in their order, whatever the statistics of the day say
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
    want integer := demand; lanes integer; looked integer := 0; from_at integer := 0; passes integer := 0;
    held record; other record; tenants integer; plain boolean; rooms integer[];
    bases bigint[]; steps bigint[]; bound bigint; line_takes integer[]; takes integer[];
    parts float8; sums float8; level float8; ideal float8; given integer; clock bigint; taken tid[];
BEGIN
    IF wake THEN
        PERFORM lane_wake_up(200);
    END IF;
    WHILE want > 0 AND passes < 16 LOOP  -- more is for the next claim
        passes := passes + 1;
        -- Two jobs of each lane for a few, some three quanta for many. Lanes may have less than their share: then
        -- more of the class are looked at.
        lanes := least(greatest(least((want + 1) / 2, 7 + want / 32), looked * 2), 128);
        SELECT turn.*, l.* INTO held
        FROM (  -- the classes that are left, and the kinds that are wanted of each
            SELECT f.level * 1000 + array_position(queues, f.queue) AS at, f.queue, f.level,
                array_agg(f.kind) AS kinds, array_agg(f.vtime) AS floors
            FROM lane_floor f
            WHERE f.queue = ANY(queues) AND (cardinality(kinds) = 0 OR f.kind = ANY(kinds))
                AND f.level * 1000 + array_position(queues, f.queue) >= from_at
                AND (SELECT true FROM worker_session w
                     WHERE w.session_id = claimer AND w.lost_at IS NULL AND w.stopped_at IS NULL)
            GROUP BY f.queue, f.level ORDER BY at
        ) AS turn CROSS JOIN LATERAL (
            SELECT count(*)::integer AS n, array_agg(near.tid) AS tids, array_agg(near.vtime) AS vtimes,
                array_agg((SELECT s.vtime FROM lane s  -- the last of its tenant's line
                           WHERE s.queue = turn.queue AND s.level = turn.level AND s.tenant_id = near.tenant_id
                               AND s.state = 'ready'
                           ORDER BY s.vtime DESC LIMIT 1)) AS lasts,
                array_agg(near.tenant_id) AS tenant_ids, array_agg(near.group_key) AS group_keys,
                array_agg(near.capped) AS capped, min(near.stride) AS least_stride, max(near.stride) AS stride
            FROM (
                SELECT near.* FROM unnest(turn.kinds, turn.floors) AS k (kind, floor) CROSS JOIN LATERAL (
                    SELECT lane.ctid AS tid, lane.tenant_id, lane.group_key, lane.vtime, lane.stride::bigint, lane.capped
                    FROM lane
                    WHERE lane.queue = turn.queue AND lane.kind = k.kind AND lane.level = turn.level
                        AND lane.state = 'ready' AND lane.vtime >= k.floor
                        AND (cardinality(providers) = 0 OR lane.provider = ANY(providers))
                    ORDER BY lane.vtime
                    LIMIT CASE cardinality(turn.kinds) WHEN 1 THEN lanes
                               ELSE lanes * 2 / cardinality(turn.kinds) + 1 END
                    FOR UPDATE SKIP LOCKED) AS near
                ORDER BY near.vtime LIMIT lanes) AS near
            HAVING count(*) > 0
        ) AS l
        LIMIT 1;
        EXIT WHEN NOT FOUND;
        -- where a kind gave all that it was asked for, there may be more
        IF lanes < 128 AND held.n >= least(lanes, lanes * 2 / cardinality(held.kinds) + 1) THEN
            looked := lanes;
            from_at := held.at;
        ELSE
            looked := 0;
            from_at := held.at + 1;
        END IF;
        tenants := CASE WHEN held.lasts = held.vtimes THEN held.n
                        ELSE (SELECT count(DISTINCT t.tenant_id) FROM unnest(held.tenant_ids) AS t (tenant_id)) END;
        IF held.n = lanes AND tenants = 1 AND want > 3 THEN
            -- all of one tenant: its quantum holds only if it is seen who else waits
            SELECT l.* INTO other FROM unnest(held.kinds) AS k (kind) CROSS JOIN LATERAL (
                SELECT near.* FROM (
                    SELECT lane.ctid AS tid, lane.tenant_id, lane.group_key, lane.vtime, lane.capped FROM lane
                    WHERE lane.queue = held.queue AND lane.kind = k.kind AND lane.level = held.level
                        AND lane.state = 'ready' AND lane.vtime >= held.vtimes[held.n]
                        AND (cardinality(providers) = 0 OR lane.provider = ANY(providers))
                    ORDER BY lane.vtime LIMIT 100) AS near
                WHERE near.tenant_id <> held.tenant_ids[1] LIMIT 1) AS l
            ORDER BY l.vtime LIMIT 1;
            IF FOUND THEN
                PERFORM FROM lane WHERE lane.ctid = other.tid FOR UPDATE SKIP LOCKED;
            END IF;
            IF FOUND THEN
                tenants := 2;
                held.n := held.n + 1;
                held.tids := held.tids || other.tid;
                held.vtimes := held.vtimes || other.vtime;
                held.lasts := held.lasts || lane_last(held.queue, held.level, other.tenant_id);
                held.tenant_ids := held.tenant_ids || other.tenant_id;
                held.group_keys := held.group_keys || other.group_key;
                held.capped := held.capped || other.capped;
            END IF;
        END IF;

        -- the virtual time of each lane's first job, and from one of its jobs to the next; or of each line
        plain := tenants = held.n AND held.least_stride = held.stride;
        IF plain THEN
            bases := held.vtimes;
            steps := array_fill(held.stride, ARRAY[held.n]);
            bound := NULL;
        ELSE
            SELECT * INTO bases, steps, bound FROM lane_starts(held.tids, held.lasts);
        END IF;
        -- where the class would get to with `want` jobs, were there enough in every lane; and what each gives till then
        parts := 0;
        sums := want;
        level := 'infinity';
        FOR i IN 1..cardinality(bases) LOOP
            EXIT WHEN bases[i] >= level;
            parts := parts + 1 / steps[i]::float8;
            sums := sums + bases[i] / steps[i]::float8;
            level := least(sums / parts, bound);
        END LOOP;
        takes := '{}';
        given := 0;
        ideal := 0;
        FOR i IN 1..cardinality(bases) LOOP
            ideal := least(want, ideal + greatest(0, level - bases[i]) / steps[i]);
            takes[i] := round(ideal)::integer - given;
            given := given + takes[i];
        END LOOP;
        IF NOT plain THEN
            line_takes := takes;
            SELECT * INTO takes, bases, steps FROM lane_shares(held.tids, held.lasts, line_takes);
        END IF;
        rooms := NULL;
        IF true = ANY(held.capped) THEN
            SELECT lane_rooms(array_agg(CASE WHEN l.capped THEN l.tenant_id END ORDER BY o),
                              array_agg(CASE WHEN l.capped THEN l.group_key END ORDER BY o), want) INTO rooms
            FROM unnest(held.tenant_ids, held.group_keys, held.capped) WITH ORDINALITY
                AS l (tenant_id, group_key, capped, o);
            FOR i IN 1..held.n LOOP
                IF rooms[i] < takes[i] THEN
                    takes[i] := greatest(0, rooms[i]);
                END IF;
            END LOOP;
        END IF;

        WITH found AS MATERIALIZED (  -- one job more of each lane tells whether there is more
            SELECT h.o, lane.ctid AS lane_tid, lane.lane_id, f.*, takes[h.o] AS take,
                least(cardinality(f.tids), takes[h.o]) AS k
            FROM unnest(held.tids) WITH ORDINALITY AS h (tid, o) JOIN lane ON lane.ctid = h.tid CROSS JOIN LATERAL (
                SELECT count(*)::integer AS seen, coalesce(array_agg(first.tid) FILTER (WHERE first.free), '{}') AS tids,
                    (array_agg(first.run_at))[count(*)::integer] AS last_at, (array_agg(first.job_id))[count(*)::integer] AS last_id
                FROM (
                    SELECT j.ctid AS tid, j.run_at, j.job_id, j.xmax = '0'::xid OR job_is_free(j.ctid) IS TRUE AS free
                    FROM job j
                    WHERE j.lane_id = lane.lane_id AND j.state = 'available' AND j.crash_count = 0
                        AND (j.run_at, j.job_id) >= (lane.mark_at, lane.mark_id) AND j.run_at <= now()
                        AND (j.expires_at IS NULL OR j.expires_at > now())
                    ORDER BY j.run_at, j.job_id LIMIT takes[h.o] + 1) AS first) AS f
        ),
        served AS (  -- those served go to the end of their tenant's line; those with nothing to give leave it
            UPDATE lane SET
                vtime = CASE WHEN now.k = 0 THEN lane.vtime
                             WHEN lane.level <> lane.priority  -- it had aged, and goes home
                             THEN lane_start(lane.queue, lane.priority, lane.kind) + lane.stride * now.k
                             ELSE coalesce(now.after, greatest(
                                 lane.vtime + lane.stride::bigint * now.k,
                                 CASE WHEN held.lasts[o] > lane.vtime THEN held.lasts[o] + 3 * lane.stride END)) END,
                level = CASE WHEN now.k = 0 THEN lane.level ELSE lane.priority END,
                served = lane.served + now.k,
                in_a_row = CASE WHEN now.k = 0 THEN lane.in_a_row WHEN tenants = 1 THEN now.k ELSE least(now.k, 3) END,
                served_at = CASE WHEN now.k > 0 THEN now() ELSE lane.served_at END,
                mark_at = CASE WHEN now.marks THEN least(now.last_at, now() - interval '1 second')
                               ELSE lane.mark_at END,
                mark_id = CASE WHEN NOT now.marks THEN lane.mark_id
                               WHEN now.last_at < now() - interval '1 second' THEN now.last_id
                               ELSE '00000000-0000-0000-0000-000000000000' END,
                state = CASE WHEN now.why IS NULL THEN 'ready' ELSE 'parked' END,
                park_reason = CASE now.why WHEN 'dry' THEN CASE WHEN now.next_at IS NULL THEN 'empty' ELSE 'due' END
                                           ELSE now.why END,
                wake_at = CASE now.why WHEN 'cap' THEN now() + interval '1 second'
                                       WHEN 'dry' THEN coalesce(now.next_at, now() + interval '1 second') END
            FROM (
                SELECT found.*,
                    k > 0 AND cardinality(tids) = seen AS marks,  -- what was passed over would be before the mark
                    CASE WHEN rooms[o] = 0 THEN 'cap'
                         -- where somebody is at all that was seen, others must not wait for him
                         WHEN seen <= take OR take > 0 AND cardinality(tids) = 0 THEN 'dry' END AS why,
                    CASE WHEN cardinality(tids) < seen THEN now() + interval '1 second'
                         WHEN seen <= take THEN lane_next_at(lane_id) END AS next_at,
                    (CASE WHEN NOT plain THEN (
                        SELECT lane_afters(held.tids, held.lasts, line_takes, array_agg(f.k ORDER BY f.o)) FROM found f)
                     END)[o] AS after
                FROM found
            ) AS now
            WHERE lane.ctid = now.lane_tid AND (now.k > 0 OR now.why IS NOT NULL)
        )
        -- by virtual time: lanes give their jobs in turn
        SELECT array_agg(job.tid ORDER BY (bases[o] + steps[o] * (job.i - 1) - bases[1]) * 256 + o) INTO taken
        FROM found CROSS JOIN LATERAL unnest(tids[1:k]) WITH ORDINALITY AS job (tid, i);
        IF coalesce(cardinality(taken), 0) < given THEN  -- others may have what these had not, or could not give
            from_at := held.at;
        END IF;
        clock := setval('lane_clock', greatest(ceil(level)::bigint, pg_sequence_last_value('lane_clock')));

        RETURN QUERY
        UPDATE job SET
            state = 'running', attempt = job.attempt + 1, started_at = now(), session_id = claimer,
            -- a fence per job from one random number per claim (R1): 63 bits, compared by equality only
            lease_id = uuid_hash_extended(job.job_id, lease_seed) & 9223372036854775807
        FROM unnest(taken) AS pick (tid)  -- one column: a row of two would be copied for each job
        WHERE job.ctid = pick.tid AND job.state = 'available'
        RETURNING job.job_id, job.lease_id, job.queue, job.kind, job.tenant_id, job.provider, job.group_key,
            job.priority, job.attempt, job.crash_count, job.args, job.streaks, job.replay_of, job.created_at,
            date_part('epoch', now() - job.run_at);
        GET DIAGNOSTICS given = ROW_COUNT;
        want := want - given;
    END LOOP;
END $$;

-- One suspect (R3), under the same caps and pauses as everything else.
CREATE FUNCTION job_claim_suspect(
    claimer uuid, lease_seed bigint, queues text[], kinds text[], providers text[])
RETURNS SETOF job LANGUAGE plpgsql AS $$
DECLARE suspect record;
BEGIN
    PERFORM FROM worker_session w WHERE w.session_id = claimer AND w.lost_at IS NULL AND w.stopped_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR suspect IN
        SELECT j.ctid AS tid, j.tenant_id, j.group_key, is_capped(j.kind, j.tenant_id, j.group_key) AS capped
        FROM job j
        WHERE j.queue = ANY(queues) AND j.state = 'available' AND j.crash_count > 0 AND j.run_at <= now()
            AND (j.expires_at IS NULL OR j.expires_at > now())
            AND (cardinality(kinds) = 0 OR j.kind = ANY(kinds))
            AND (cardinality(providers) = 0 OR j.provider = ANY(providers))
            AND paused_until(j.queue, j.kind, coalesce(j.provider, ''), j.tenant_id, j.group_key) IS NULL
        ORDER BY j.priority, j.run_at, j.job_id
        LIMIT 20 FOR UPDATE SKIP LOCKED
    LOOP
        CONTINUE WHEN suspect.capped AND (lane_rooms(
            ARRAY[suspect.tenant_id], ARRAY[suspect.group_key], 1))[1] <= 0;
        RETURN QUERY
        UPDATE job SET
            state = 'running', attempt = attempt + 1, started_at = NULL, session_id = claimer,
            lease_id = uuid_hash_extended(job_id, lease_seed) & 9223372036854775807
        WHERE ctid = suspect.tid
        RETURNING job.*;
        RETURN;
    END LOOP;
END $$;
