-- job_claim: claim up to `demand` due jobs lane by lane: classes strictly, within a class by virtual time.
-- Takes   claimer: the session, lease_seed, queues, kinds, providers ('{}': all), demand, wake: make due lanes
--         ready first
-- Returns the claimed jobs in the order to start them in
-- Locks   lanes, caps and jobs that it uses; passes over what others have locked. Waits at most 1 s for a floor
-- Needs   READ COMMITTED and several statements: a cap is exact only if the running jobs are counted by a
--         snapshot taken after the cap's row was locked. The statements are small, with arrays between them,
--         because one statement for all of it costs as much to set up as to execute. Spec: Q6, R16, R17.
--
-- Jobs are not locked before they are updated, because a claim that holds a lane is the only claim there. A
-- cancel or a raised priority may hold a job all the same; such a row has a mark (xmax) and is passed over if
-- it is locked. A lane of which only a later job is known stays ready for a second, as an empty lane does: a
-- job that is being stored just now saw it ready. Where another claim counts the cap of all lanes of a class,
-- the claim goes on to the next class.
CREATE FUNCTION job_claim(
    claimer uuid, lease_seed bigint, queues text[], kinds text[], providers text[], demand integer, wake boolean)
RETURNS TABLE (
    job_id uuid, lease_id bigint, queue text, kind text, tenant_id text, provider text, group_key text,
    priority smallint, attempt integer, crash_count smallint, args jsonb, streaks jsonb, replay_of uuid,
    created_at timestamptz, waited_s float8, call_waited_s float8
) LANGUAGE plpgsql
-- all that is read here are short ranges of indexes in their order, whatever the statistics of the day say
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET lock_timeout = '1s'
AS $$
#variable_conflict use_column
DECLARE
    want integer := demand; lanes integer; looked integer := 0; from_at integer := 0; passes integer := 0;
    held record; other record; tenants integer; plain boolean; rooms integer[];
    bases bigint[]; steps bigint[]; bound bigint; line_takes integer[]; takes integer[];
    parts float8; sums float8; level float8; ideal float8; given integer; clock bigint; taken tid[]; moved bigint;
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
            -- all of one tenant: its quantum counts only against other waiting tenants
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
            SELECT lane_places(array_agg(CASE WHEN l.capped THEN l.tenant_id END ORDER BY o),
                               array_agg(CASE WHEN l.capped THEN l.group_key END ORDER BY o), takes) INTO rooms
            FROM unnest(held.tenant_ids, held.group_keys, held.capped) WITH ORDINALITY
                AS l (tenant_id, group_key, capped, o);
            FOR i IN 1..held.n LOOP
                IF rooms[i] < takes[i] THEN
                    takes[i] := greatest(0, rooms[i]);
                END IF;
            END LOOP;
        END IF;

        WITH found AS MATERIALIZED (  -- one more job of each lane shows whether more are due
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
                -- a transaction that saw the lane ready may commit its job within a second, so check once more
                wake_at = CASE WHEN now.why IS NOT NULL THEN least(now.next_at, now() + interval '1 second') END
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
            RETURNING 1
        )
        -- by virtual time: lanes give their jobs in turn
        SELECT array_agg(job.tid ORDER BY (bases[o] + steps[o] * (job.i - 1) - bases[1]) * 256 + o),
            (SELECT count(*) FROM served) INTO taken, moved
        FROM found CROSS JOIN LATERAL unnest(tids[1:k]) WITH ORDINALITY AS job (tid, i);
        -- others may have what these had not, or could not give; but where all stay as they are, since somebody else
        -- counts their cap at this moment, they would only be met again
        IF moved > 0 AND coalesce(cardinality(taken), 0) < given THEN
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
            date_part('epoch', now() - job.run_at), date_part('epoch', now() - job.call_waits_since);
        GET DIAGNOSTICS given = ROW_COUNT;
        want := want - given;
    END LOOP;
END $$;
