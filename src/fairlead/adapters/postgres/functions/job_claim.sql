-- job_claim: claim up to `demand` due jobs: the most urgent class first, and within a class by virtual time.
-- Takes   claimer: the session; lease_seed; queues, kinds, providers ('{}': all); demand; wake: make due lanes
--         ready first
-- Returns the claimed jobs in the order in which to start them
-- Locks   the lanes, caps and jobs that it uses; passes over locked ones. It waits at most 1 s for a floor
-- Needs   READ COMMITTED and several statements: a cap is exact only if the running jobs are counted by a
--         snapshot taken after the cap's row was locked. The statements are small, with arrays between them,
--         because one statement for all of it costs as much to set up as to execute. Spec: Q6, R16, R17.
--
-- Jobs are not locked before they are updated, because a lane is claimed by one claim at a time. A cancellation
-- or a raised priority may still lock a job; its row has a mark (xmax), and is passed over while it is locked.
-- A lane with only later jobs stays ready for a second, as an empty lane does, because a transaction that
-- stores a job just now saw it ready. If another claim counts the cap of all lanes of a class, this claim goes
-- on to the next class.
CREATE FUNCTION job_claim(
    claimer uuid, lease_seed bigint, queues text[], kinds text[], providers text[], demand integer, wake boolean)
RETURNS TABLE (
    job_id uuid, lease_id bigint, queue text, kind text, tenant_id text, provider text, group_key text,
    priority smallint, attempt integer, crash_count smallint, args jsonb, streaks jsonb, replay_of uuid,
    created_at timestamptz, waited_s float8, call_waited_s float8
) LANGUAGE plpgsql
-- every read is a short range of an index in its order, whatever the statistics say today
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET lock_timeout = '1s'
AS $$
#variable_conflict use_column
DECLARE
    remaining integer := demand; lane_limit integer; limit_reached integer := 0; from_class integer := 0;
    passes integer := 0;
    batch record; other_lane record; tenant_count integer; is_plain boolean; places integer[];
    first_vtimes bigint[]; steps bigint[]; vtime_bound bigint; line_shares integer[]; shares integer[];
    inverse_steps float8; vtime_sum float8; level float8; ideal_jobs float8; clock bigint;
    assigned_jobs integer; claimed_jobs integer; job_tids tid[]; changed_lanes bigint;
BEGIN
    IF wake THEN
        PERFORM lane_wake_up(200);
    END IF;
    WHILE remaining > 0 AND passes < 16 LOOP  -- a later claim takes the rest
        passes := passes + 1;
        -- One lane for every two jobs, and fewer lanes per job if the demand is large. If lanes have fewer jobs than
        -- their share, the next pass reads twice as many lanes of the class.
        lane_limit := least(greatest(least((remaining + 1) / 2, 7 + remaining / 32), limit_reached * 2), 128);
        SELECT class.*, l.* INTO batch
        FROM (  -- the remaining classes, each with its kinds
            SELECT f.level * 1000 + array_position(queues, f.queue) AS class_rank, f.queue, f.level,
                array_agg(f.kind) AS kinds, array_agg(f.vtime) AS floors
            FROM lane_floor f
            WHERE f.queue = ANY(queues) AND (cardinality(kinds) = 0 OR f.kind = ANY(kinds))
                AND f.level * 1000 + array_position(queues, f.queue) >= from_class
                AND (SELECT true FROM worker_session w
                     WHERE w.session_id = claimer AND w.lost_at IS NULL AND w.stopped_at IS NULL)
            GROUP BY f.queue, f.level ORDER BY class_rank
        ) AS class CROSS JOIN LATERAL (
            SELECT count(*)::integer AS n, array_agg(candidate.tid) AS tids, array_agg(candidate.vtime) AS vtimes,
                array_agg((SELECT s.vtime FROM lane s  -- the end of its tenant's line
                           WHERE s.queue = class.queue AND s.level = class.level AND s.tenant_id = candidate.tenant_id
                               AND s.state = 'ready'
                           ORDER BY s.vtime DESC LIMIT 1)) AS last_vtimes,
                array_agg(candidate.tenant_id) AS tenant_ids, array_agg(candidate.group_key) AS group_keys,
                array_agg(candidate.capped) AS capped, min(candidate.stride) AS least_stride,
                max(candidate.stride) AS stride
            FROM (
                SELECT candidate.* FROM unnest(class.kinds, class.floors) AS kind_floor (kind, floor) CROSS JOIN LATERAL (
                    SELECT lane.ctid AS tid, lane.tenant_id, lane.group_key, lane.vtime, lane.stride::bigint, lane.capped
                    FROM lane
                    WHERE lane.queue = class.queue AND lane.kind = kind_floor.kind AND lane.level = class.level
                        AND lane.state = 'ready' AND lane.vtime >= kind_floor.floor
                        AND (cardinality(providers) = 0 OR lane.provider = ANY(providers))
                    ORDER BY lane.vtime
                    LIMIT CASE cardinality(class.kinds) WHEN 1 THEN lane_limit
                               ELSE lane_limit * 2 / cardinality(class.kinds) + 1 END
                    FOR UPDATE SKIP LOCKED) AS candidate
                ORDER BY candidate.vtime LIMIT lane_limit) AS candidate
            HAVING count(*) > 0
        ) AS l
        LIMIT 1;
        EXIT WHEN NOT FOUND;
        -- if a kind filled its limit, it may have more lanes
        IF lane_limit < 128 AND batch.n >= least(lane_limit, lane_limit * 2 / cardinality(batch.kinds) + 1) THEN
            limit_reached := lane_limit;
            from_class := batch.class_rank;
        ELSE
            limit_reached := 0;
            from_class := batch.class_rank + 1;
        END IF;
        tenant_count := CASE WHEN batch.last_vtimes = batch.vtimes THEN batch.n
                        ELSE (SELECT count(DISTINCT t.tenant_id) FROM unnest(batch.tenant_ids) AS t (tenant_id)) END;
        IF batch.n = lane_limit AND tenant_count = 1 AND remaining > 3 THEN
            -- if all lanes are of one tenant, look for another waiting tenant: only then its quantum limits it
            SELECT l.* INTO other_lane FROM unnest(batch.kinds) AS batch_kind (kind) CROSS JOIN LATERAL (
                SELECT candidate.* FROM (
                    SELECT lane.ctid AS tid, lane.tenant_id, lane.group_key, lane.vtime, lane.capped FROM lane
                    WHERE lane.queue = batch.queue AND lane.kind = batch_kind.kind AND lane.level = batch.level
                        AND lane.state = 'ready' AND lane.vtime >= batch.vtimes[batch.n]
                        AND (cardinality(providers) = 0 OR lane.provider = ANY(providers))
                    ORDER BY lane.vtime LIMIT 100) AS candidate
                WHERE candidate.tenant_id <> batch.tenant_ids[1] LIMIT 1) AS l
            ORDER BY l.vtime LIMIT 1;
            IF FOUND THEN
                PERFORM FROM lane WHERE lane.ctid = other_lane.tid FOR UPDATE SKIP LOCKED;
            END IF;
            IF FOUND THEN
                tenant_count := 2;
                batch.n := batch.n + 1;
                batch.tids := batch.tids || other_lane.tid;
                batch.vtimes := batch.vtimes || other_lane.vtime;
                batch.last_vtimes := batch.last_vtimes || lane_last_vtime(batch.queue, batch.level, other_lane.tenant_id);
                batch.tenant_ids := batch.tenant_ids || other_lane.tenant_id;
                batch.group_keys := batch.group_keys || other_lane.group_key;
                batch.capped := batch.capped || other_lane.capped;
            END IF;
        END IF;

        -- for each lane, or each line of lanes: the virtual time of its first job, and the step to the next
        is_plain := tenant_count = batch.n AND batch.least_stride = batch.stride;
        IF is_plain THEN
            first_vtimes := batch.vtimes;
            steps := array_fill(batch.stride, ARRAY[batch.n]);
            vtime_bound := NULL;
        ELSE
            SELECT * INTO first_vtimes, steps, vtime_bound FROM lane_line_starts(batch.tids, batch.last_vtimes);
        END IF;
        -- the virtual time that the class reaches with this many jobs if no lane runs out, and the share of each lane
        inverse_steps := 0;
        vtime_sum := remaining;
        level := 'infinity';
        FOR i IN 1..cardinality(first_vtimes) LOOP
            EXIT WHEN first_vtimes[i] >= level;
            inverse_steps := inverse_steps + 1 / steps[i]::float8;
            vtime_sum := vtime_sum + first_vtimes[i] / steps[i]::float8;
            level := least(vtime_sum / inverse_steps, vtime_bound);
        END LOOP;
        shares := '{}';
        assigned_jobs := 0;
        ideal_jobs := 0;
        FOR i IN 1..cardinality(first_vtimes) LOOP
            ideal_jobs := least(remaining, ideal_jobs + greatest(0, level - first_vtimes[i]) / steps[i]);
            shares[i] := round(ideal_jobs)::integer - assigned_jobs;
            assigned_jobs := assigned_jobs + shares[i];
        END LOOP;
        IF NOT is_plain THEN
            line_shares := shares;
            SELECT * INTO shares, first_vtimes, steps FROM lane_line_shares(batch.tids, batch.last_vtimes, line_shares);
        END IF;
        places := NULL;
        IF true = ANY(batch.capped) THEN
            SELECT lane_places(array_agg(CASE WHEN l.capped THEN l.tenant_id END ORDER BY ord),
                               array_agg(CASE WHEN l.capped THEN l.group_key END ORDER BY ord), shares) INTO places
            FROM unnest(batch.tenant_ids, batch.group_keys, batch.capped) WITH ORDINALITY
                AS l (tenant_id, group_key, capped, ord);
            FOR i IN 1..batch.n LOOP
                IF places[i] < shares[i] THEN
                    shares[i] := greatest(0, places[i]);
                END IF;
            END LOOP;
        END IF;

        WITH lane_jobs AS MATERIALIZED (  -- one job more than the share of each lane shows whether more are due
            SELECT h.ord, lane.ctid AS lane_tid, lane.lane_id, f.*, shares[h.ord] AS share,
                least(cardinality(f.tids), shares[h.ord]) AS jobs
            FROM unnest(batch.tids) WITH ORDINALITY AS h (tid, ord) JOIN lane ON lane.ctid = h.tid CROSS JOIN LATERAL (
                SELECT count(*)::integer AS jobs_read,
                    coalesce(array_agg(due_job.tid) FILTER (WHERE due_job.free), '{}') AS tids,
                    (array_agg(due_job.run_at))[count(*)::integer] AS last_at,
                    (array_agg(due_job.job_id))[count(*)::integer] AS last_id
                FROM (
                    SELECT j.ctid AS tid, j.run_at, j.job_id, j.xmax = '0'::xid OR job_try_lock(j.ctid) IS TRUE AS free
                    FROM job j
                    WHERE j.lane_id = lane.lane_id AND j.state = 'available' AND j.crash_count = 0
                        AND (j.run_at, j.job_id) >= (lane.mark_at, lane.mark_id) AND j.run_at <= now()
                        AND (j.expires_at IS NULL OR j.expires_at > now())
                    ORDER BY j.run_at, j.job_id LIMIT shares[h.ord] + 1) AS due_job) AS f
        ),
        updated_lanes AS (  -- a lane that gave jobs goes to the end of its tenant's line; one without due jobs leaves it
            UPDATE lane SET
                vtime = CASE WHEN change.jobs = 0 THEN lane.vtime
                             WHEN lane.level <> lane.priority  -- it had aged, and returns to its own class
                             THEN lane_join_vtime(lane.queue, lane.priority, lane.kind) + lane.stride * change.jobs
                             ELSE coalesce(change.next_vtime, greatest(
                                 lane.vtime + lane.stride::bigint * change.jobs,
                                 CASE WHEN batch.last_vtimes[ord] > lane.vtime
                                     THEN batch.last_vtimes[ord] + 3 * lane.stride END)) END,
                level = CASE WHEN change.jobs = 0 THEN lane.level ELSE lane.priority END,
                served = lane.served + change.jobs,
                in_a_row = CASE WHEN change.jobs = 0 THEN lane.in_a_row
                                WHEN tenant_count = 1 THEN change.jobs ELSE least(change.jobs, 3) END,
                served_at = CASE WHEN change.jobs > 0 THEN now() ELSE lane.served_at END,
                mark_at = CASE WHEN change.moves_mark THEN least(change.last_at, now() - interval '1 second')
                               ELSE lane.mark_at END,
                mark_id = CASE WHEN NOT change.moves_mark THEN lane.mark_id
                               WHEN change.last_at < now() - interval '1 second' THEN change.last_id
                               ELSE '00000000-0000-0000-0000-000000000000' END,
                state = CASE WHEN change.reason IS NULL THEN 'ready' ELSE 'parked' END,
                park_reason = CASE change.reason
                    WHEN 'no_job' THEN CASE WHEN change.next_at IS NULL THEN 'empty' ELSE 'due' END
                    ELSE change.reason END,
                -- a transaction that saw the lane ready may commit a job within a second, so it is checked again
                wake_at = CASE WHEN change.reason IS NOT NULL THEN least(change.next_at, now() + interval '1 second') END
            FROM (
                SELECT lane_jobs.*,
                    -- a job that was passed over must not end up before the mark
                    jobs > 0 AND cardinality(tids) = jobs_read AS moves_mark,
                    CASE WHEN places[ord] = 0 THEN 'cap'
                         -- if all jobs that it read are locked, later ones must not wait for them
                         WHEN jobs_read <= share OR share > 0 AND cardinality(tids) = 0 THEN 'no_job' END AS reason,
                    CASE WHEN cardinality(tids) < jobs_read THEN now() + interval '1 second'
                         WHEN jobs_read <= share THEN lane_next_at(lane_id) END AS next_at,
                    (CASE WHEN NOT is_plain THEN (
                        SELECT lane_next_vtimes(batch.tids, batch.last_vtimes, line_shares,
                            array_agg(f.jobs ORDER BY f.ord)) FROM lane_jobs f)
                     END)[ord] AS next_vtime
                FROM lane_jobs
            ) AS change
            WHERE lane.ctid = change.lane_tid AND (change.jobs > 0 OR change.reason IS NOT NULL)
            RETURNING 1
        )
        -- in the order of virtual time, so that the lanes alternate
        SELECT array_agg(job.tid ORDER BY (first_vtimes[ord] + steps[ord] * (job.i - 1) - first_vtimes[1]) * 256 + ord),
            (SELECT count(*) FROM updated_lanes) INTO job_tids, changed_lanes
        FROM lane_jobs CROSS JOIN LATERAL unnest(tids[1:jobs]) WITH ORDINALITY AS job (tid, i);
        -- Other lanes of the class may fill what these could not. But if no lane changed, because another claim counts
        -- their caps at this moment, the next pass would only read the same lanes again.
        IF changed_lanes > 0 AND coalesce(cardinality(job_tids), 0) < assigned_jobs THEN
            from_class := batch.class_rank;
        END IF;
        clock := setval('lane_clock', greatest(ceil(level)::bigint, pg_sequence_last_value('lane_clock')));

        RETURN QUERY
        UPDATE job SET
            state = 'running', attempt = job.attempt + 1, started_at = now(), session_id = claimer,
            -- a fence per job from one random number per claim (R1): 63 bits, compared by equality only
            lease_id = uuid_hash_extended(job.job_id, lease_seed) & 9223372036854775807
        FROM unnest(job_tids) AS pick (tid)  -- one column: a row of two would be copied for each job
        WHERE job.ctid = pick.tid AND job.state = 'available'
        RETURNING job.job_id, job.lease_id, job.queue, job.kind, job.tenant_id, job.provider, job.group_key,
            job.priority, job.attempt, job.crash_count, job.args, job.streaks, job.replay_of, job.created_at,
            date_part('epoch', now() - job.run_at), date_part('epoch', now() - job.call_waits_since);
        GET DIAGNOSTICS claimed_jobs = ROW_COUNT;
        remaining := remaining - claimed_jobs;
    END LOOP;
END $$;
