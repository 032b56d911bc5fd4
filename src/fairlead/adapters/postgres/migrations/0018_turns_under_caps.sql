-- 0018_turns_under_caps: who waits under a cap ages, and holds up no other work; a claim is one text again (Q6, R17).
-- Phase   pre (the version before it calls the same functions)
-- Needs   0016_capped_turns, 0017_floors_of_empty_classes

-- The claim of 0003 as 0012 and 0016 left it, with two changes.
--
-- A lane of which a later job is known was parked until that one, at once: a job that was being stored at that moment,
-- by somebody who had seen the lane ready, waited for the sweep. Now it lingers for a second, as an empty lane does.
--
-- Where lanes stay as they are, since somebody else counts their cap, the claim goes on to the next class. It met
-- them again, sixteen times, and gave nothing, whatever else was due.
--
-- Claim up to `demand` due jobs, lane by lane: classes strictly, within a class by virtual time. The order of the
-- rows is the order to start them in. With `wake`, lanes whose time has come are made ready first. Several statements,
-- because a cap is exact only if what runs is counted by a snapshot taken after the cap's row was locked (READ
-- COMMITTED, R17); and small ones with arrays between them, because one statement that does it all costs as much to set
-- up as to carry out.
--
-- Jobs are not locked before they are updated: who holds a lane is the only claimer there. Somebody else may be at a
-- job all the same (a cancel, a raised priority); such a row has a mark (xmax), and is passed over if it is locked.
CREATE OR REPLACE FUNCTION job_claim_with_wait(
    claimer uuid, lease_seed bigint, queues text[], kinds text[], providers text[], demand integer, wake boolean)
RETURNS TABLE (
    job_id uuid, lease_id bigint, queue text, kind text, tenant_id text, provider text, group_key text,
    priority smallint, attempt integer, crash_count smallint, args jsonb, streaks jsonb, replay_of uuid,
    created_at timestamptz, waited_s float8, call_waited_s float8
) LANGUAGE plpgsql
-- all that is read here are short ranges of indexes in their order, whatever the statistics of the day say
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET lock_timeout = '1s' AS $$
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
                -- who stored a job and saw the lane ready may commit within a second: it is looked at once more
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

-- Nothing calls these any more: the version before has had job_claim_with_wait since 0012, and 0016 replaced their use.
DROP FUNCTION job_claim;
DROP FUNCTION lane_rooms;

-- ---- the wait under a cap ----------------------------------------------------------------------

-- A lane that came back from a full cap had its wait begin anew, each second. So none looked old, and endless urgent
-- work under the same cap, another tenant's too, kept the less urgent from its turn for ever.

DROP INDEX lane_cap_idx, lane_group_cap_idx;
CREATE INDEX lane_cap_idx ON lane (tenant_id, level, vtime) WHERE park_reason = 'cap';
CREATE INDEX lane_group_cap_idx ON lane (group_key, level, vtime) WHERE park_reason = 'cap' AND group_key <> '';
CREATE INDEX lane_cap_wait_idx ON lane (tenant_id, served_at) WHERE park_reason = 'cap';
CREATE INDEX lane_group_cap_wait_idx ON lane (group_key, served_at) WHERE park_reason = 'cap' AND group_key <> '';

-- The class of who waits since then: one up for each quarter of five minutes (LONGEST_WAIT_S of policy/lane.py).
CREATE FUNCTION lane_risen(home smallint, since timestamptz) RETURNS smallint LANGUAGE sql STABLE AS $$
    SELECT greatest(0, home - floor(extract(epoch FROM now() - since) / 75))::smallint
$$;

-- Places have become free: lanes parked for the cap of these tenants or groups are ready again, the first `most` and the
-- two that wait longest, each behind the one before it.
CREATE OR REPLACE FUNCTION lane_uncap(tenants text[], groups text[], most integer) RETURNS void LANGUAGE sql VOLATILE
SET enable_seqscan = off AS $$
    UPDATE lane SET
        state = 'ready', park_reason = NULL, wake_at = NULL, level = waiting.level,
        vtime = greatest(CASE WHEN lane.level = waiting.level THEN lane.vtime END,  -- other classes have their own
                         waiting.start, waiting.last + lane.stride) + lane.stride::bigint * waiting.before
    FROM (
        SELECT held.tid, held.level, lane_start(held.queue, held.level, held.kind) AS start,
            lane_last(held.queue, held.level, held.tenant_id) AS last,
            row_number() OVER (PARTITION BY held.queue, held.level, held.tenant_id ORDER BY held.served_at) - 1 AS before
        FROM (
            SELECT l.ctid AS tid, l.queue, least(l.level, lane_risen(l.priority, l.served_at)) AS level, l.kind,
                l.tenant_id, l.served_at
            FROM lane l
            WHERE l.park_reason = 'cap' AND l.ctid = ANY(ARRAY(
                SELECT near.tid FROM (SELECT DISTINCT unnest(tenants)) AS freed (tenant_id) CROSS JOIN LATERAL (
                    (SELECT c.ctid AS tid FROM lane c WHERE c.park_reason = 'cap' AND c.tenant_id = freed.tenant_id
                     ORDER BY c.served_at LIMIT 2)
                    UNION
                    (SELECT c.ctid FROM lane c WHERE c.park_reason = 'cap' AND c.tenant_id = freed.tenant_id
                     ORDER BY c.level, c.vtime LIMIT least(most, 500))) AS near
                UNION
                SELECT near.tid FROM (SELECT DISTINCT unnest(groups)) AS freed (group_key) CROSS JOIN LATERAL (
                    (SELECT c.ctid AS tid FROM lane c
                     WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = freed.group_key
                     ORDER BY c.served_at LIMIT 2)
                    UNION
                    (SELECT c.ctid FROM lane c
                     WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = freed.group_key
                     ORDER BY c.level, c.vtime LIMIT least(most, 500))) AS near))
            ORDER BY least(l.level, lane_risen(l.priority, l.served_at)), l.served_at
            LIMIT least(most, 500) + 2 FOR UPDATE SKIP LOCKED
        ) AS held
    ) AS waiting
    WHERE lane.ctid = waiting.tid
$$;

-- Look again at lanes whose time has come, and at those that lane_wake names; at most `most` of each. Claims ask some
-- twenty times a second, mostly for nothing: so first whether there is anything.
CREATE OR REPLACE FUNCTION lane_wake_up(most integer) RETURNS integer LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE seen_to record; woken integer := 0; named uuid[]; due_ats timestamptz[];
BEGIN
    SELECT f.wake_at, f.written_by INTO seen_to FROM lane_wake_floor f;
    IF EXISTS (SELECT FROM lane_wake WHERE written_by >= seen_to.written_by) THEN
        BEGIN
            WITH taken AS (
                DELETE FROM lane_wake WHERE ctid = ANY(ARRAY(
                    SELECT ctid FROM lane_wake WHERE written_by >= seen_to.written_by
                    ORDER BY written_by LIMIT most FOR UPDATE SKIP LOCKED))
                RETURNING lane_id, due_at
            )
            SELECT array_agg(lane_id), array_agg(due_at) INTO named, due_ats FROM taken;
            IF named IS NOT NULL THEN
                PERFORM lane_touch(named, due_ats);
            END IF;
        EXCEPTION WHEN lock_not_available THEN  -- somebody pauses and holds up who makes lanes (lane_barrier): what was
            NULL;                               -- taken is left to the next look, and the claim goes on
        END;
    END IF;
    IF NOT EXISTS (SELECT FROM lane l WHERE l.state = 'parked' AND l.wake_at BETWEEN seen_to.wake_at AND now()) THEN
        RETURN woken;
    END IF;
    PERFORM pg_current_xact_id();  -- before the snapshot by which lanes join: floors wait for it (0017)
    WITH due AS MATERIALIZED (
        SELECT l.*, l.ctid AS tid FROM lane l
        WHERE l.state = 'parked' AND l.wake_at BETWEEN seen_to.wake_at AND now()
        ORDER BY l.wake_at LIMIT most FOR UPDATE SKIP LOCKED
    ),
    seen AS MATERIALIZED (
        SELECT due.*, next.run_at, next.job_id,
            -- who has risen while it waited for room stays where it is; all others go home
            CASE due.park_reason WHEN 'cap' THEN least(due.level, due.priority) ELSE due.priority END AS joins,
            held_until(due.queue, due.kind, due.provider, due.tenant_id, due.group_key) AS paused
        FROM due LEFT JOIN LATERAL (
            SELECT job.run_at, job.job_id FROM job
            WHERE job.lane_id = due.lane_id AND job.state = 'available' AND job.crash_count = 0
                AND (job.run_at, job.job_id) >= (due.mark_at, due.mark_id)
                AND (job.expires_at IS NULL OR job.expires_at > now())
            ORDER BY job.run_at, job.job_id LIMIT 1
        ) AS next ON true
    ),
    class AS MATERIALIZED (
        SELECT queue, joins, kind, lane_start(queue, joins, kind) AS start FROM seen GROUP BY queue, joins, kind
    ),
    moved AS (
        UPDATE lane SET
            state = now.state,
            park_reason = CASE WHEN now.state = 'parked' THEN
                CASE WHEN now.paused IS NOT NULL THEN 'pause' WHEN now.run_at IS NULL THEN 'empty' ELSE 'due' END END,
            wake_at = CASE WHEN now.state = 'parked' THEN coalesce(
                now.paused, now.run_at, now() + interval '1 second') END,
            level = now.joins,
            vtime = CASE WHEN now.state = 'ready' THEN now.place ELSE lane.vtime END,
            -- as in job_claim: who commits within a second may be before what is seen now
            mark_at = CASE WHEN now.run_at IS NULL THEN lane.mark_at
                           ELSE least(now.run_at, now() - interval '1 second') END,
            mark_id = CASE WHEN now.run_at IS NULL THEN lane.mark_id
                           WHEN now.run_at < now() - interval '1 second' THEN now.job_id
                           ELSE '00000000-0000-0000-0000-000000000000' END,
            -- who comes back from a full cap has waited for its turn all that time
            served_at = CASE WHEN now.state = 'ready' AND lane.park_reason <> 'cap' THEN now() ELSE lane.served_at END
        FROM (
            SELECT seen.*, greatest(class.start, coalesce(
                    lane_last(seen.queue, seen.joins, seen.tenant_id) + seen.stride, seen.own_vtime))
                + seen.stride::bigint * (row_number() OVER (
                    PARTITION BY seen.queue, seen.joins, seen.tenant_id, seen.state
                    ORDER BY seen.served_at) - 1) AS place
            FROM (
                SELECT s.tid, s.queue, s.joins, s.served_at, s.kind, s.tenant_id, s.stride, s.vtime, s.run_at, s.job_id,
                    s.paused,
                    CASE WHEN s.level = s.joins THEN s.vtime END AS own_vtime,  -- other classes have times of their own
                    CASE WHEN s.paused IS NOT NULL THEN 'parked'
                         WHEN s.run_at <= now() THEN 'ready'
                         WHEN s.run_at IS NULL AND s.park_reason = 'empty' THEN 'idle'  -- it was empty twice
                         ELSE 'parked' END AS state
                FROM seen s
            ) AS seen JOIN class USING (queue, joins, kind)
        ) AS now
        WHERE lane.ctid = now.tid
        RETURNING lane.state
    )
    SELECT count(*) FILTER (WHERE state = 'ready') INTO woken FROM moved;
    RETURN woken;
END $$;
