-- 0002_lanes: lanes, their shares, caps and pauses; the fair claim (Q2, Q6, Q7, R16-R18).
-- Phase   pre (the version before it goes on with its own claim; what it enqueues gets its lanes by the sweep)
-- Needs   0001_ground_floor. Rewrites the table job: some seconds for each million rows
--
-- A lane is the work of one (queue, kind, provider, priority, tenant, group). It is ready (somebody may claim
-- from it), parked (it will be looked at again at wake_at), or idle (it has no work). docs/states.md draws it.
--
-- Rows of lane change with every claim, so everything that reads them survives a pinned snapshot: no unique index
-- (each update would walk the dead versions), and every index that is read ends in vtime, which only grows:
-- scans begin at a floor, and a lane's newest version is the one with the greatest vtime.

-- ---- lanes -------------------------------------------------------------------------------------

-- Names are plain and hold no slash; the tenant's length tells where it ends (R36).
CREATE FUNCTION lane_of(queue text, kind text, provider text, priority smallint, tenant_id text, group_key text)
RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT encode(substr(sha256(convert_to(
        queue || '/' || kind || '/' || coalesce(provider, '') || '/' || priority::text || '/'
        || length(tenant_id)::text || '/' || tenant_id || group_key, 'UTF8')), 1, 16), 'hex')::uuid
$$;

ALTER TABLE job ADD COLUMN lane_id uuid NOT NULL
    GENERATED ALWAYS AS (lane_of(queue, kind, provider, priority, tenant_id, group_key)) STORED;
CREATE INDEX job_lane_idx ON job (lane_id, run_at, job_id) WHERE state = 'available' AND crash_count = 0;
-- for caps: what runs of a tenant, and of a group
CREATE INDEX job_running_tenant_idx ON job (tenant_id) WHERE state = 'running';
CREATE INDEX job_running_group_idx ON job (group_key) WHERE state = 'running' AND group_key <> '';

-- Which lanes there are: the one unique key, in rows that never change.
CREATE TABLE lane_name (
    lane_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    group_key text NOT NULL
);
CREATE INDEX lane_name_tenant_idx ON lane_name (tenant_id, group_key);
CREATE INDEX lane_name_group_idx ON lane_name (group_key) WHERE group_key <> '';

CREATE TABLE lane (
    lane_id uuid NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    provider text NOT NULL,
    tenant_id text NOT NULL,
    group_key text NOT NULL,
    priority smallint NOT NULL,
    -- the class it is served in: its priority, or a more urgent one after a long wait
    level smallint NOT NULL,
    state text NOT NULL CHECK (state IN ('ready', 'parked', 'idle')),
    park_reason text CHECK (park_reason IN ('due', 'empty', 'cap', 'pause')),
    wake_at timestamptz,
    vtime bigint NOT NULL,
    -- 1000 / weight, and whether a cap holds for its tenant or group: copies of what is set for them
    stride integer NOT NULL DEFAULT 1000,
    capped boolean NOT NULL DEFAULT false,
    -- no job before (mark_at, mark_id) is available: where a claim begins to read
    mark_at timestamptz NOT NULL DEFAULT '-infinity',
    mark_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    served bigint NOT NULL DEFAULT 0,
    in_a_row integer NOT NULL DEFAULT 0,
    -- when it was last served or made ready: since then it waits for its turn
    served_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((state = 'parked') = (park_reason IS NOT NULL)),
    CHECK ((state = 'parked') = (wake_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);
CREATE INDEX lane_find_idx ON lane (lane_id, vtime);
CREATE INDEX lane_ready_idx ON lane (queue, kind, level, vtime) WHERE state = 'ready';
CREATE INDEX lane_sibling_idx ON lane (queue, level, tenant_id, vtime) WHERE state = 'ready';
CREATE INDEX lane_wake_idx ON lane (wake_at) WHERE state = 'parked';
CREATE INDEX lane_cap_idx ON lane (tenant_id) WHERE park_reason = 'cap';

-- Where scans of ready lanes begin, for each class of each kind; raised each second by whoever is first.
CREATE TABLE lane_floor (
    queue text NOT NULL,
    level smallint NOT NULL,
    kind text NOT NULL,
    vtime bigint NOT NULL DEFAULT 0,
    -- where the class was when the floor was last raised: the next floor. A statement that makes a lane ready
    -- meanwhile may not have committed yet
    rising bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, level, kind)
) WITH (fillfactor = 10);

-- And where scans of parked lanes begin: what was to be woken before that has been.
CREATE TABLE lane_wake_floor (wake_at timestamptz NOT NULL) WITH (fillfactor = 10);
INSERT INTO lane_wake_floor VALUES ('-infinity');

-- The virtual time of the last lane that left a class empty: who comes then banks no credit. A sequence, because
-- a row that changes with every claim would grow without end under a pinned snapshot.
CREATE SEQUENCE lane_clock AS bigint MINVALUE 0 START 0;

-- Lanes to be made ready by the next claim: written where the lane itself must not be locked, by transactions
-- of unknown length.
CREATE TABLE lane_wake (
    wake_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane_id uuid NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

-- ---- what people set ---------------------------------------------------------------------------

CREATE TABLE tenant_tier (
    name text PRIMARY KEY,
    weight double precision CHECK (weight BETWEEN 0.001 AND 1000),
    max_running integer CHECK (max_running > 0)
);

CREATE TABLE tenant_share (
    tenant_id text PRIMARY KEY,
    tier text REFERENCES tenant_tier,
    weight double precision CHECK (weight BETWEEN 0.001 AND 1000),
    max_running integer CHECK (max_running > 0)
);
CREATE INDEX tenant_share_tier_idx ON tenant_share (tier) WHERE tier IS NOT NULL;

-- The caps in force. '' for the tenant: all tenants' jobs of the group; '' for the group: all of the tenant's.
-- A claim locks the rows of what it is about to count, so two claims never count at the same time.
CREATE TABLE running_cap (
    tenant_id text NOT NULL,
    group_key text NOT NULL,
    max_running integer NOT NULL CHECK (max_running > 0),
    PRIMARY KEY (tenant_id, group_key),
    CHECK (tenant_id <> '' OR group_key <> '')
);

CREATE TABLE pause (
    scope text NOT NULL CHECK (scope IN ('queue', 'kind', 'tenant', 'provider', 'group')),
    -- of a group: whose; '' for a group that all tenants share, and for every other scope
    tenant_id text NOT NULL DEFAULT '',
    key text NOT NULL,
    until timestamptz NOT NULL DEFAULT 'infinity',
    reason text NOT NULL,
    paused_by text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, tenant_id, key),
    CHECK (tenant_id = '' OR scope = 'group')
);
CREATE INDEX pause_until_idx ON pause (until);

DO $$
DECLARE table_name text;
BEGIN
    FOREACH table_name IN ARRAY ARRAY['lane_name', 'lane', 'tenant_share', 'running_cap', 'pause'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', table_name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', table_name);
        EXECUTE format('CREATE POLICY engine_sees_all ON %I TO fairlead_engine USING (true) WITH CHECK (true)',
                       table_name);
        EXECUTE format('CREATE POLICY door_sees_its_tenant ON %I TO fairlead_door '
                       'USING (tenant_id = current_setting(''fairlead.tenant_id'', true)) '
                       'WITH CHECK (tenant_id = current_setting(''fairlead.tenant_id'', true))', table_name);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_name, lane, lane_floor, lane_wake_floor, lane_wake, tenant_tier, tenant_share,
    running_cap, pause TO fairlead_engine;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE lane_clock TO fairlead_engine;

-- ---- small questions ---------------------------------------------------------------------------

-- Until when a lane of these names is paused; NULL if it is not.
CREATE FUNCTION paused_until(of_queue text, of_kind text, of_provider text, of_tenant text, of_group text)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT max(until) FROM pause
    WHERE until > now() AND (scope, tenant_id, key) IN (
        VALUES ('queue', '', of_queue), ('kind', '', of_kind), ('provider', '', of_provider),
               ('tenant', '', of_tenant), ('group', '', of_group), ('group', of_tenant, of_group))
$$;

-- The same for who is about to park a lane. The pauses stay locked until he has done it: whoever ends one of them
-- finds all that was parked for it.
CREATE FUNCTION held_until(of_queue text, of_kind text, of_provider text, of_tenant text, of_group text)
RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT max(until) FROM (
        SELECT until FROM pause
        WHERE until > now() AND (scope, tenant_id, key) IN (
            VALUES ('queue', '', of_queue), ('kind', '', of_kind), ('provider', '', of_provider),
                   ('tenant', '', of_tenant), ('group', '', of_group), ('group', of_tenant, of_group))
        FOR SHARE) AS in_force
$$;

-- Where a lane that becomes ready joins its class: the least virtual time of its kind, or where none of its kind is
-- ready, of all. None banks credit (R17): neither for what came before it, nor because nobody takes some other kind,
-- whose lanes stay behind; and none joins below the floor, where no claim would see it.
CREATE FUNCTION lane_start(of_queue text, of_level smallint, of_kind text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT greatest(
        CASE WHEN count(first.vtime) = 0 THEN (SELECT last_value FROM lane_clock)
             ELSE coalesce(min(first.vtime) FILTER (WHERE f.kind = of_kind), min(first.vtime)) END,
        max(f.vtime) FILTER (WHERE f.kind = of_kind))
    FROM lane_floor f LEFT JOIN LATERAL (
        SELECT vtime FROM lane
        WHERE queue = f.queue AND kind = f.kind AND level = f.level AND state = 'ready' AND vtime >= f.vtime
        ORDER BY vtime LIMIT 1
    ) AS first ON true
    WHERE f.queue = of_queue AND f.level = of_level
$$;

-- The last of a tenant's ready lanes in a class; NULL if none is. A tenant's lanes stand in one line, each behind the
-- one before it: so many of them get no more than one would (R16).
CREATE FUNCTION lane_last(of_queue text, of_level smallint, of_tenant text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT vtime FROM lane
    WHERE queue = of_queue AND level = of_level AND tenant_id = of_tenant AND state = 'ready'
    ORDER BY vtime DESC LIMIT 1
$$;

CREATE FUNCTION stride_of(of_tenant text) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT greatest(1, round(1000 / coalesce(
        (SELECT coalesce(s.weight, t.weight) FROM tenant_share s LEFT JOIN tenant_tier t ON t.name = s.tier
         WHERE s.tenant_id = of_tenant), 1)))::integer
$$;

CREATE FUNCTION is_capped(of_tenant text, of_group text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM running_cap WHERE (tenant_id, group_key) IN (
        VALUES (of_tenant, ''), ('', of_group), (of_tenant, of_group)))
$$;

-- ---- making lanes ready ------------------------------------------------------------------------

-- Lanes that are not there yet, each with the names of its first available job.
CREATE FUNCTION lane_create(missing uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH head AS MATERIALIZED (
        SELECT first.* FROM unnest(missing) AS asked (lane_id) CROSS JOIN LATERAL (
            SELECT job.lane_id, job.queue, job.kind, coalesce(job.provider, '') AS provider, job.priority,
                job.tenant_id, job.group_key, job.run_at FROM job
            WHERE job.lane_id = asked.lane_id AND job.state = 'available' AND job.crash_count = 0
            ORDER BY job.run_at, job.job_id LIMIT 1
        ) AS first
    ),
    new AS (  -- whoever is first here makes the lane; in key order, so that two callers never deadlock
        INSERT INTO lane_name (lane_id, tenant_id, group_key)
        SELECT DISTINCT lane_id, tenant_id, group_key FROM head ORDER BY lane_id
        ON CONFLICT DO NOTHING RETURNING lane_id
    ),
    named AS MATERIALIZED (
        SELECT head.*, held_until(queue, kind, provider, tenant_id, group_key) AS paused
        FROM head JOIN new USING (lane_id)
    ),
    class AS MATERIALIZED (  -- one start for all that join a class together
        SELECT queue, priority, kind, lane_start(queue, priority, kind) AS start FROM named
        GROUP BY queue, priority, kind
    ),
    floors AS (
        INSERT INTO lane_floor (queue, level, kind)
        SELECT q.queue, level, q.kind FROM (SELECT DISTINCT queue, kind FROM named) AS q, generate_series(0, 3) AS level
        WHERE NOT EXISTS (SELECT FROM lane_floor f WHERE f.queue = q.queue AND f.level = 3 AND f.kind = q.kind)
        ORDER BY q.queue, level, q.kind
        ON CONFLICT DO NOTHING
    )
    INSERT INTO lane (lane_id, queue, kind, provider, tenant_id, group_key, priority, level, stride, capped,
                      state, park_reason, wake_at, vtime)
    SELECT lane_id, queue, kind, provider, tenant_id, group_key, priority, priority, stride,
        is_capped(tenant_id, group_key),
        CASE WHEN coalesce(paused, run_at) <= now() THEN 'ready' ELSE 'parked' END,
        CASE WHEN paused IS NOT NULL THEN 'pause' WHEN run_at > now() THEN 'due' END,
        CASE WHEN coalesce(paused, run_at) > now() THEN coalesce(paused, run_at) END,
        greatest(start, lane_last(queue, priority, tenant_id) + stride) + stride::bigint * before
    FROM (
        SELECT named.*, class.start, stride_of(named.tenant_id) AS stride,
            row_number() OVER (PARTITION BY queue, priority, named.tenant_id ORDER BY run_at, lane_id) - 1 AS before
        FROM named JOIN class USING (queue, priority, kind)
    ) AS joining;
END $$;

-- Work has come: lanes of available jobs become ready, or are parked until their first job is due. A lane that
-- somebody else has locked at this moment is left to the next claim (lane_wake). Never waits for a claim.
CREATE FUNCTION lane_touch(lane_ids uuid[], due_ats timestamptz[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE missing uuid[]; behind uuid[];
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT a.lane_id, min(a.due_at) AS due_at FROM unnest(lane_ids, due_ats) AS a (lane_id, due_at)
        GROUP BY a.lane_id
    ),
    found AS MATERIALIZED (
        SELECT asked.*, lane.tid, lane.state, lane.park_reason, lane.wake_at, lane.mark_at
        FROM asked LEFT JOIN LATERAL (
            SELECT l.ctid AS tid, l.state, l.park_reason, l.wake_at, l.mark_at FROM lane l
            WHERE l.lane_id = asked.lane_id ORDER BY l.vtime DESC LIMIT 1
        ) AS lane ON true
    ),
    wanting AS MATERIALIZED (
        SELECT * FROM found
        WHERE tid IS NOT NULL AND (
            state = 'idle' OR mark_at >= due_at
            -- an empty lane is about to be forgotten by somebody who does not see this job yet
            OR state = 'parked' AND (park_reason = 'empty'
                OR park_reason = 'due' AND (wake_at > due_at OR due_at <= now())))
    ),
    held AS MATERIALIZED (
        SELECT l.*, l.ctid AS tid, wanting.due_at FROM wanting JOIN lane l ON l.ctid = wanting.tid
        FOR UPDATE OF l SKIP LOCKED
    ),
    class AS MATERIALIZED (
        SELECT queue, priority, kind, lane_start(queue, priority, kind) AS start FROM held
        WHERE state <> 'ready' AND due_at <= now() GROUP BY queue, priority, kind
    ),
    moved AS (
        UPDATE lane SET
            mark_at = least(lane.mark_at, now.due_at),
            mark_id = CASE WHEN lane.mark_at >= now.due_at THEN '00000000-0000-0000-0000-000000000000'
                           ELSE lane.mark_id END,
            state = now.state, park_reason = now.park_reason, wake_at = now.wake_at,
            level = CASE WHEN now.start IS NULL THEN lane.level ELSE lane.priority END,
            vtime = CASE WHEN now.start IS NULL THEN lane.vtime ELSE greatest(
                coalesce(now.last + lane.stride, lane.vtime), now.start) + lane.stride::bigint * now.before END,
            served_at = CASE WHEN now.start IS NULL THEN lane.served_at ELSE now() END
        FROM (
            SELECT held.tid, held.due_at, class.start,
                CASE WHEN stays THEN held.state WHEN class.start IS NOT NULL THEN 'ready' ELSE 'parked' END AS state,
                CASE WHEN stays THEN held.park_reason WHEN class.start IS NULL THEN 'due' END AS park_reason,
                CASE WHEN stays THEN held.wake_at WHEN class.start IS NULL THEN held.due_at END AS wake_at,
                lane_last(held.queue, held.priority, held.tenant_id) AS last,
                row_number() OVER (PARTITION BY held.queue, held.priority, held.tenant_id, class.start IS NULL
                                   ORDER BY held.vtime) - 1 AS before
            FROM (SELECT *, state = 'ready' OR park_reason IN ('pause', 'cap') IS TRUE AS stays FROM held) AS held
                LEFT JOIN class ON class.queue = held.queue AND class.priority = held.priority
                    AND class.kind = held.kind AND held.due_at <= now() AND NOT held.stays
        ) AS now
        WHERE lane.ctid = now.tid
    )
    SELECT array_agg(lane_id) FILTER (WHERE tid IS NULL),
        array_agg(lane_id) FILTER (WHERE lane_id IN (SELECT w.lane_id FROM wanting w)
                                   AND lane_id NOT IN (SELECT h.lane_id FROM held h))
    INTO missing, behind FROM found;
    IF missing IS NOT NULL THEN
        PERFORM lane_create(missing);
    END IF;
    IF behind IS NOT NULL THEN
        INSERT INTO lane_wake (lane_id) SELECT unnest(behind);
    END IF;
END $$;

-- Look again at lanes whose time has come, and at those that lane_wake names; at most `most` of each.
CREATE FUNCTION lane_wake_up(most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE woken integer; named uuid[];
BEGIN
    WITH taken AS (
        DELETE FROM lane_wake WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM lane_wake ORDER BY wake_id LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING lane_id
    )
    SELECT array_agg(DISTINCT lane_id) INTO named FROM taken;
    IF named IS NOT NULL THEN
        PERFORM lane_touch(array_agg(first.lane_id), array_agg(first.run_at))
        FROM unnest(named) AS n (lane_id) CROSS JOIN LATERAL (
            SELECT job.lane_id, job.run_at FROM job
            WHERE job.lane_id = n.lane_id AND job.state = 'available' AND job.crash_count = 0
            ORDER BY job.run_at, job.job_id LIMIT 1) AS first;
    END IF;
    WITH due AS MATERIALIZED (
        SELECT l.*, l.ctid AS tid FROM lane l
        WHERE l.state = 'parked' AND l.wake_at <= now() AND l.wake_at >= (SELECT f.wake_at FROM lane_wake_floor f)
        ORDER BY l.wake_at LIMIT most FOR UPDATE SKIP LOCKED
    ),
    seen AS MATERIALIZED (
        SELECT due.*, next.run_at, next.job_id,
            held_until(due.queue, due.kind, due.provider, due.tenant_id, due.group_key) AS paused
        FROM due LEFT JOIN LATERAL (
            SELECT job.run_at, job.job_id FROM job
            WHERE job.lane_id = due.lane_id AND job.state = 'available' AND job.crash_count = 0
                AND (job.expires_at IS NULL OR job.expires_at > now())
            ORDER BY job.run_at, job.job_id LIMIT 1
        ) AS next ON true
    ),
    class AS MATERIALIZED (
        SELECT queue, priority, kind, lane_start(queue, priority, kind) AS start FROM seen
        GROUP BY queue, priority, kind
    ),
    moved AS (
        UPDATE lane SET
            state = now.state,
            park_reason = CASE WHEN now.state = 'parked' THEN
                CASE WHEN now.paused IS NOT NULL THEN 'pause' WHEN now.run_at IS NULL THEN 'empty' ELSE 'due' END END,
            wake_at = CASE WHEN now.state = 'parked' THEN coalesce(
                now.paused, now.run_at, now() + interval '1 second') END,
            level = lane.priority,
            vtime = CASE WHEN now.state = 'ready' THEN now.joins ELSE lane.vtime END,
            mark_at = coalesce(now.run_at, '-infinity'),
            mark_id = coalesce(now.job_id, '00000000-0000-0000-0000-000000000000'),
            served_at = CASE WHEN now.state = 'ready' THEN now() ELSE lane.served_at END
        FROM (
            SELECT seen.*, greatest(class.start, coalesce(
                    lane_last(seen.queue, seen.priority, seen.tenant_id) + seen.stride, seen.vtime))
                + seen.stride::bigint * (row_number() OVER (
                    PARTITION BY seen.queue, seen.priority, seen.tenant_id, seen.state ORDER BY seen.vtime) - 1) AS joins
            FROM (
                SELECT s.tid, s.queue, s.priority, s.kind, s.tenant_id, s.stride, s.vtime, s.run_at, s.job_id, s.paused,
                    CASE WHEN s.paused IS NOT NULL THEN 'parked'
                         WHEN s.run_at <= now() THEN 'ready'
                         WHEN s.run_at IS NULL AND s.park_reason = 'empty' THEN 'idle'  -- it was empty twice
                         ELSE 'parked' END AS state
                FROM seen s
            ) AS seen JOIN class USING (queue, priority, kind)
        ) AS now
        WHERE lane.ctid = now.tid
        RETURNING lane.state
    )
    SELECT count(*) FILTER (WHERE state = 'ready') INTO woken FROM moved;
    RETURN woken;
END $$;

-- Places have become free: lanes parked for the cap of these tenants or groups are ready again.
CREATE FUNCTION lane_uncap(tenants text[], groups text[]) RETURNS void LANGUAGE sql VOLATILE
SET enable_seqscan = off AS $$
    UPDATE lane SET
        state = 'ready', park_reason = NULL, wake_at = NULL, served_at = now(),
        vtime = greatest(lane.vtime, lane_start(lane.queue, lane.level, lane.kind))
    FROM (
        SELECT ctid AS tid FROM lane
        WHERE park_reason = 'cap' AND (tenant_id = ANY(tenants) OR group_key <> '' AND group_key = ANY(groups))
        LIMIT 500 FOR UPDATE SKIP LOCKED
    ) AS waiting
    WHERE lane.ctid = waiting.tid
$$;

-- ---- the claim ---------------------------------------------------------------------------------

-- What caps leave to each of these lanes; NULL where no cap holds, 0 where there is no place left, -1 where another
-- claim counts at this moment or the lanes before it may take what is left. The caps' rows stay locked to the end of
-- the transaction, and what runs is counted by a later snapshot: so the places are exact.
CREATE FUNCTION lane_rooms(held lane[], want integer) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE locked tid[]; rooms integer[];
BEGIN
    SELECT array_agg(c.tid) INTO locked FROM (
        SELECT running_cap.ctid AS tid FROM running_cap
        WHERE tenant_id = ANY(ARRAY(SELECT '' UNION SELECT h.tenant_id FROM unnest(held) AS h WHERE h.capped))
            AND group_key = ANY(ARRAY(SELECT '' UNION SELECT h.group_key FROM unnest(held) AS h WHERE h.capped))
        ORDER BY tenant_id, group_key FOR UPDATE SKIP LOCKED) AS c;
    WITH cap AS MATERIALIZED (
        SELECT c.tenant_id, c.group_key, CASE WHEN c.ctid = ANY(locked) THEN greatest(0, c.max_running - (
            CASE WHEN c.tenant_id = ''
                 THEN (SELECT count(*) FROM job j
                       WHERE j.group_key = c.group_key AND j.group_key <> '' AND j.state = 'running')
                 ELSE (SELECT count(*) FROM job j
                       WHERE j.tenant_id = c.tenant_id AND j.state = 'running'
                           AND (c.group_key = '' OR j.group_key = c.group_key)) END)) END AS places
        FROM running_cap c
        WHERE c.tenant_id = ANY(ARRAY(SELECT '' UNION SELECT h.tenant_id FROM unnest(held) AS h WHERE h.capped))
            AND c.group_key = ANY(ARRAY(SELECT '' UNION SELECT h.group_key FROM unnest(held) AS h WHERE h.capped))
    ),
    left_over AS (  -- of each cap that holds for a lane, after the lanes before it had theirs
        SELECT h.ordinality AS o, cap.places, least(cap.places, want) AS mine, cap.places - coalesce(
            sum(least(cap.places, want, 3)) OVER (PARTITION BY cap.tenant_id, cap.group_key ORDER BY h.ordinality
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS places_left,
            lead(h.ordinality) OVER (PARTITION BY cap.tenant_id, cap.group_key ORDER BY h.ordinality) IS NULL AS last
        FROM unnest(held) WITH ORDINALITY AS h JOIN cap
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
    FROM generate_subscripts(held, 1) AS h (o) LEFT JOIN judged USING (o);
    RETURN rooms;
END $$;

-- Claim up to `demand` due jobs, lane by lane: classes strictly, within a class by virtual time. The order of the
-- rows is the order to start them in. Three statements, because a cap is exact only if what runs is counted by a
-- snapshot taken after the cap's row was locked (READ COMMITTED, R17).
--
-- Jobs are not locked before they are updated: who holds a lane is the only claimer there. Somebody else may be at a
-- job all the same (a cancel, a raised priority); such a row has a mark (xmax), and is passed over if it is locked.
CREATE FUNCTION job_claim(
    claimer uuid, lease_seed bigint, queues text[], kinds text[], providers text[], demand integer)
RETURNS TABLE (
    job_id uuid, lease_id bigint, queue text, kind text, tenant_id text, provider text, group_key text,
    priority smallint, attempt integer, crash_count smallint, args jsonb, streaks jsonb, replay_of uuid,
    created_at timestamptz, waited_s float8
) LANGUAGE plpgsql
-- all that is read here are short ranges of indexes, whatever the statistics of the day say; planned once
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
    turn record; held lane[]; tids tid[]; rooms integer[]; other record; want integer := demand; lanes integer; got integer;
    more boolean; some_capped boolean; one_tenant boolean;
BEGIN
    PERFORM FROM worker_session w WHERE w.session_id = claimer AND w.lost_at IS NULL AND w.stopped_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR turn IN  -- the classes that have work, and the kinds that have it there
        SELECT f.queue, f.level, array_agg(f.kind) AS kinds, array_agg(f.vtime) AS floors
        FROM unnest(queues) WITH ORDINALITY AS named (queue, place) JOIN lane_floor f ON f.queue = named.queue
        -- no EXISTS: it may be planned as a join that begins with all lanes
        WHERE (cardinality(kinds) = 0 OR f.kind = ANY(kinds)) AND (
            SELECT true FROM lane
            WHERE lane.queue = f.queue AND lane.kind = f.kind AND lane.level = f.level AND lane.state = 'ready'
                AND lane.vtime >= f.vtime
            ORDER BY lane.vtime LIMIT 1)
        GROUP BY f.queue, f.level, named.place ORDER BY f.level, named.place
    LOOP
        EXIT WHEN want <= 0;
        lanes := least((want + 5) / 6 + 1, 128);  -- two quanta of each
        SELECT array_agg(taken.tid), array_agg(taken.row), bool_or((taken.row).capped),
            min((taken.row).tenant_id) = max((taken.row).tenant_id)
        INTO tids, held, some_capped, one_tenant FROM (
            SELECT l.tid, l.row FROM unnest(turn.kinds, turn.floors) AS k (kind, floor) CROSS JOIN LATERAL (
                SELECT lane.ctid AS tid, lane AS row, lane.vtime FROM lane
                WHERE lane.queue = turn.queue AND lane.kind = k.kind AND lane.level = turn.level
                    AND lane.state = 'ready' AND lane.vtime >= k.floor
                    AND (cardinality(providers) = 0 OR lane.provider = ANY(providers))
                ORDER BY lane.vtime
                LIMIT CASE cardinality(turn.kinds) WHEN 1 THEN lanes ELSE lanes * 2 / cardinality(turn.kinds) + 1 END
                FOR UPDATE SKIP LOCKED) AS l
            ORDER BY l.vtime LIMIT lanes) AS taken;
        CONTINUE WHEN held IS NULL;
        more := cardinality(held) = lanes;
        IF more AND one_tenant THEN
            -- all of one tenant: its quantum holds only if it is seen who else waits
            SELECT l.tid, l.row INTO other FROM unnest(turn.kinds) AS k (kind) CROSS JOIN LATERAL (
                SELECT near.* FROM (
                    SELECT lane.ctid AS tid, lane AS row, lane.vtime, lane.tenant_id FROM lane
                    WHERE lane.queue = turn.queue AND lane.kind = k.kind AND lane.level = turn.level
                        AND lane.state = 'ready' AND lane.vtime >= (held[lanes]).vtime
                        AND (cardinality(providers) = 0 OR lane.provider = ANY(providers))
                    ORDER BY lane.vtime LIMIT 100) AS near
                WHERE near.tenant_id <> (held[1]).tenant_id LIMIT 1) AS l
            ORDER BY l.vtime LIMIT 1;
            IF FOUND THEN
                PERFORM FROM lane WHERE lane.ctid = other.tid FOR UPDATE SKIP LOCKED;
                IF FOUND THEN
                    tids := tids || other.tid;
                    held := held || other.row;
                    some_capped := some_capped OR (other.row).capped;
                END IF;
            END IF;
        END IF;

        rooms := NULL;
        IF some_capped THEN
            rooms := lane_rooms(held, want);
        END IF;

        RETURN QUERY
        WITH ready AS MATERIALIZED (
            SELECT h.lane_id, h.kind, h.tenant_id, h.priority, h.vtime, h.stride, h.mark_at, h.mark_id, h.ordinality AS o,
                tids[h.ordinality] AS tid, rooms[h.ordinality] AS room, last.vtime AS last_ready,
                first_value(h.vtime) OVER of_tenant AS start, last_value(h.vtime) OVER of_tenant AS last_held,
                row_number() OVER of_tenant - 1 AS sibling, count(*) OVER of_tenant AS siblings
            FROM unnest(held) WITH ORDINALITY AS h CROSS JOIN LATERAL (
                SELECT l.vtime FROM lane l
                WHERE l.queue = turn.queue AND l.level = turn.level AND l.tenant_id = h.tenant_id AND l.state = 'ready'
                ORDER BY l.vtime DESC LIMIT 1) AS last
            WINDOW of_tenant AS (PARTITION BY h.tenant_id ORDER BY h.vtime, h.ordinality
                                 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        ),
        bounded AS (  -- nobody gets more than three for one of all the others, whatever the weights
            SELECT ready.*, CASE WHEN siblings = cardinality(held)
                    OR 3 * (sum(1 / stride::float8 / siblings) OVER () - 1 / stride::float8) >= 1 / stride::float8
                THEN stride
                ELSE round(1 / (sum(1 / stride::float8 / siblings) OVER () - 1 / stride::float8) / 3)::integer END AS step,
                max(vtime) OVER () AS front
            FROM ready
        ),
        roomy AS MATERIALIZED (
            SELECT bounded.*, least(want, room, CASE WHEN more
                    THEN greatest(ceil(want / (lanes - 1)::float8), ceil((front - start) / (step * siblings)::float8))
                    ELSE ceil(want / (step * siblings)::float8 / sum(1 / (step * siblings)::float8) OVER ()) + 2
                END::integer) AS take,
                -- no further than to where the next lane of its line stands
                CASE WHEN last_ready > last_held THEN (last_held - start) / step + 1 ELSE want END AS most
            FROM bounded
        ),
        found AS MATERIALIZED (  -- one more than may be taken: it tells whether the lane has more
            SELECT roomy.o, j.*, (j.n - 1) * roomy.siblings + roomy.sibling < roomy.most AND j.n <= roomy.take AS wanted,
                -- its virtual start: a tenant's lanes give one job each, in turn
                roomy.start + roomy.step * ((j.n - 1) * roomy.siblings + roomy.sibling) AS tag
            FROM roomy CROSS JOIN LATERAL (
                SELECT job.ctid AS tid, job.job_id, job.run_at, job.run_at <= now() AS due,
                    job.xmax <> '0'::xid AS marked, row_number() OVER () AS n
                FROM (
                    SELECT ctid, job_id, run_at, xmax FROM job
                    WHERE job.lane_id = roomy.lane_id AND job.state = 'available' AND job.crash_count = 0
                        AND (job.run_at, job.job_id) >= (roomy.mark_at, roomy.mark_id)
                        AND (job.expires_at IS NULL OR job.expires_at > now())
                    ORDER BY job.run_at, job.job_id LIMIT roomy.take + 1) AS job) AS j
            WHERE roomy.take >= 0
        ),
        free AS MATERIALIZED (
            SELECT job.ctid AS tid FROM found JOIN job ON job.ctid = found.tid WHERE found.marked
            FOR UPDATE OF job SKIP LOCKED
        ),
        pick AS MATERIALIZED (
            SELECT found.o, found.tid, found.job_id, found.run_at, found.tag FROM found
            WHERE found.due AND found.wanted AND (NOT found.marked OR found.tid IN (SELECT free.tid FROM free))
            ORDER BY found.tag, found.o LIMIT want
        ),
        used AS MATERIALIZED (
            SELECT pick.o, count(*) AS k, max(pick.run_at) AS last_at,
                (array_agg(pick.job_id))[count(*)] AS last_id  -- in the order of pick
            FROM pick GROUP BY pick.o
        ),
        rest AS MATERIALIZED (
            SELECT o, count(*) FILTER (WHERE due) AS due, min(run_at) FILTER (WHERE NOT due) AS next_at
            FROM found GROUP BY o
        ),
        charge AS (  -- the lanes served go to the end of their tenant's line
            UPDATE lane SET
                vtime = now.vtime, level = now.level, served = lane.served + now.k,
                in_a_row = CASE WHEN now.k = 0 THEN lane.in_a_row WHEN now.alone THEN now.k ELSE least(now.k, 3) END,
                served_at = CASE WHEN now.k > 0 THEN now() ELSE lane.served_at END,
                mark_at = CASE WHEN now.k > 0 THEN least(now.last_at, now() - interval '1 second')
                               ELSE lane.mark_at END,
                mark_id = CASE WHEN now.k = 0 THEN lane.mark_id
                               WHEN now.last_at < now() - interval '1 second' THEN now.last_id
                               ELSE '00000000-0000-0000-0000-000000000000' END,
                state = CASE WHEN now.park_reason IS NULL THEN 'ready' ELSE 'parked' END,
                park_reason = now.park_reason,
                wake_at = CASE now.park_reason WHEN 'due' THEN now.next_at WHEN 'cap' THEN now() + interval '500 ms'
                               WHEN 'empty' THEN now() + interval '1 second' END
            FROM (
                SELECT roomy.tid, roomy.siblings = cardinality(held) AS alone, coalesce(used.k, 0) AS k, used.last_at,
                    used.last_id, rest.next_at,
                    CASE WHEN used.k IS NULL THEN turn.level ELSE roomy.priority END AS level,
                    CASE WHEN used.k IS NULL THEN roomy.vtime ELSE
                        greatest(
                            CASE WHEN turn.level = roomy.priority THEN roomy.start
                                 ELSE lane_start(turn.queue, roomy.priority, roomy.kind) END
                                + roomy.step * CASE WHEN roomy.siblings = 1 THEN used.k
                                    ELSE (SELECT sum(u.k) FROM roomy r JOIN used u USING (o)
                                          WHERE r.tenant_id = roomy.tenant_id)::bigint END,
                            CASE WHEN roomy.last_ready > roomy.last_held THEN roomy.last_ready + 3 * roomy.step END)
                        + 3 * roomy.step * roomy.sibling END AS vtime,
                    CASE WHEN coalesce(rest.due, 0) > coalesce(used.k, 0)
                         THEN CASE WHEN roomy.room = 0 THEN 'cap' END
                         WHEN rest.next_at IS NOT NULL THEN 'due' ELSE 'empty' END AS park_reason
                FROM roomy LEFT JOIN used USING (o) LEFT JOIN rest USING (o)
                WHERE roomy.take >= 0
            ) AS now
            WHERE lane.ctid = now.tid AND (now.k > 0 OR now.park_reason IS NOT NULL)
            RETURNING lane.vtime
        ),
        clock AS MATERIALIZED (
            SELECT setval('lane_clock', greatest(max(charge.vtime), (SELECT c.last_value FROM lane_clock c)))
            FROM charge
        ),
        started AS (
            UPDATE job SET
                state = 'running', attempt = job.attempt + 1, started_at = now(), session_id = claimer,
                -- a fence per job from one random number per claim (R1): 63 bits, compared by equality only
                lease_id = uuid_hash_extended(job.job_id, lease_seed) & 9223372036854775807
            FROM pick WHERE job.ctid = pick.tid AND job.state = 'available'
            RETURNING pick.tag, pick.o, job.job_id, job.lease_id, job.queue, job.kind, job.tenant_id, job.provider,
                job.group_key, job.priority, job.attempt, job.crash_count, job.args, job.streaks, job.replay_of,
                job.created_at, extract(epoch FROM now() - job.run_at)::float8 AS waited_s
        )
        SELECT s.job_id, s.lease_id, s.queue, s.kind, s.tenant_id, s.provider, s.group_key, s.priority, s.attempt,
            s.crash_count, s.args, s.streaks, s.replay_of, s.created_at, s.waited_s
        FROM started s CROSS JOIN clock ORDER BY s.tag, s.o;
        GET DIAGNOSTICS got = ROW_COUNT;
        want := want - got;
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
        SELECT j.ctid AS tid, is_capped(j.tenant_id, j.group_key) AS capped,
            jsonb_populate_record(NULL::lane, jsonb_build_object(
                'tenant_id', j.tenant_id, 'group_key', j.group_key, 'capped', true)) AS lane
        FROM job j
        WHERE j.queue = ANY(queues) AND j.state = 'available' AND j.crash_count > 0 AND j.run_at <= now()
            AND (j.expires_at IS NULL OR j.expires_at > now())
            AND (cardinality(kinds) = 0 OR j.kind = ANY(kinds))
            AND (cardinality(providers) = 0 OR j.provider = ANY(providers))
            AND paused_until(j.queue, j.kind, coalesce(j.provider, ''), j.tenant_id, j.group_key) IS NULL
        ORDER BY j.priority, j.run_at, j.job_id
        LIMIT 20 FOR UPDATE SKIP LOCKED
    LOOP
        CONTINUE WHEN suspect.capped AND (lane_rooms(ARRAY[suspect.lane], 1))[1] <= 0;
        RETURN QUERY
        UPDATE job SET
            state = 'running', attempt = attempt + 1, started_at = NULL, session_id = claimer,
            lease_id = uuid_hash_extended(job_id, lease_seed) & 9223372036854775807
        WHERE ctid = suspect.tid
        RETURNING job.*;
        RETURN;
    END LOOP;
END $$;

-- ---- upkeep ------------------------------------------------------------------------------------

-- Raise the floors to where each class has got to. `whole`: look below them too. Two seconds of parked lanes stay
-- above theirs: a statement that parks one may take so long to commit.
CREATE FUNCTION lane_raise_floors(whole boolean) RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE lane_floor SET vtime = least(lane_floor.rising, found.vtime), rising = found.vtime
    FROM (
        SELECT f.ctid AS tid, least_ready.vtime FROM lane_floor f CROSS JOIN LATERAL (
            SELECT lane.vtime FROM lane
            WHERE lane.queue = f.queue AND lane.kind = f.kind AND lane.level = f.level
                AND lane.state = 'ready' AND (whole OR lane.vtime >= f.vtime)
            ORDER BY lane.vtime LIMIT 1
        ) AS least_ready
        WHERE least_ready.vtime <> f.vtime OR least_ready.vtime <> f.rising
        FOR UPDATE OF f SKIP LOCKED
    ) AS found
    WHERE lane_floor.ctid = found.tid;
    UPDATE lane_wake_floor SET wake_at = least(now() - interval '2 seconds', coalesce((
        SELECT lane.wake_at FROM lane
        WHERE lane.state = 'parked' AND (whole OR lane.wake_at >= lane_wake_floor.wake_at)
        ORDER BY lane.wake_at LIMIT 1), 'infinity'))
$$;

-- Lanes that wait for their turn longer than a quarter of the longest wait, per class that they rise.
CREATE FUNCTION lane_age(longest_wait_s float8) RETURNS integer LANGUAGE sql VOLATILE AS $$
    WITH old AS MATERIALIZED (
        SELECT l.ctid AS tid, l.queue, l.kind,
            greatest(0, l.priority - floor(extract(epoch FROM now() - l.served_at) / (longest_wait_s / 4)))::smallint
                AS level
        FROM lane_floor f JOIN lane l ON l.queue = f.queue AND l.kind = f.kind AND l.level = f.level
        WHERE f.level > 0 AND l.state = 'ready' AND l.vtime >= f.vtime
            AND l.served_at < now() - (l.priority - l.level + 1) * longest_wait_s / 4 * interval '1 second'
        FOR UPDATE OF l SKIP LOCKED
    ),
    class AS MATERIALIZED (
        SELECT queue, level, kind, lane_start(queue, level, kind) AS start FROM old GROUP BY queue, level, kind
    ),
    aged AS (
        UPDATE lane SET level = old.level, vtime = class.start
        FROM old JOIN class USING (queue, level, kind)
        WHERE lane.ctid = old.tid RETURNING 1
    )
    SELECT count(*)::integer FROM aged
$$;

-- Make the invariant hold: an available job's lane is ready, or parked with a wake time. The net under everything
-- else: it reads each lane that has work, whatever the lane's row says.
CREATE FUNCTION lane_sweep() RETURNS TABLE (opened integer, parked integer, deleted integer) LANGUAGE plpgsql AS $$
DECLARE lost uuid[]; due_ats timestamptz[];
BEGIN
    PERFORM lane_raise_floors(true);
    WITH RECURSIVE heads AS (  -- the first job of each lane: a walk from lane to lane along job_lane_idx
        (SELECT lane_id, run_at, job_id FROM job WHERE state = 'available' AND crash_count = 0
         ORDER BY lane_id, run_at, job_id LIMIT 1)
        UNION ALL
        SELECT next.* FROM heads CROSS JOIN LATERAL (
            SELECT lane_id, run_at, job_id FROM job
            WHERE state = 'available' AND crash_count = 0 AND lane_id > heads.lane_id
            ORDER BY lane_id, run_at, job_id LIMIT 1) AS next
    )
    SELECT array_agg(heads.lane_id), array_agg(heads.run_at) INTO lost, due_ats
    FROM heads LEFT JOIN LATERAL (
        SELECT l.state, l.park_reason, l.wake_at, l.mark_at, l.mark_id FROM lane l
        WHERE l.lane_id = heads.lane_id ORDER BY l.vtime DESC LIMIT 1
    ) AS lane ON true
    WHERE lane.state IS NULL OR lane.state = 'idle'
        OR (heads.run_at, heads.job_id) < (lane.mark_at, lane.mark_id)
        OR lane.park_reason = 'due' AND lane.wake_at > heads.run_at;
    opened := coalesce(cardinality(lost), 0);
    IF lost IS NOT NULL THEN
        DELETE FROM lane_name WHERE lane_id = ANY(lost)  -- a name without its lane
            AND NOT EXISTS (SELECT FROM lane WHERE lane.lane_id = lane_name.lane_id);
        PERFORM lane_touch(lost, due_ats);
    END IF;

    -- a kind that is gone leaves no floor behind; a lane that is there has one
    DELETE FROM lane_floor f WHERE NOT EXISTS (
        SELECT FROM lane l WHERE l.queue = f.queue AND l.kind = f.kind);
    INSERT INTO lane_floor (queue, level, kind)
    SELECT l.queue, level, l.kind FROM (SELECT DISTINCT queue, kind FROM lane) AS l, generate_series(0, 3) AS level
    ON CONFLICT DO NOTHING;

    WITH should AS MATERIALIZED (
        SELECT l.ctid AS tid, stride_of(l.tenant_id) AS stride, is_capped(l.tenant_id, l.group_key) AS capped,
            paused_until(l.queue, l.kind, l.provider, l.tenant_id, l.group_key) AS until
        FROM lane l
    ),
    wrong AS MATERIALIZED (
        SELECT l.ctid AS tid, should.stride, should.capped, should.until FROM should JOIN lane l ON l.ctid = should.tid
        WHERE l.stride <> should.stride OR l.capped <> should.capped
            OR should.until IS NOT NULL AND l.park_reason IS DISTINCT FROM 'pause'
        FOR UPDATE OF l SKIP LOCKED
    ),
    mended AS (
        UPDATE lane SET
            stride = w.stride, capped = w.capped,
            state = CASE WHEN w.until IS NULL THEN lane.state ELSE 'parked' END,
            park_reason = CASE WHEN w.until IS NULL THEN lane.park_reason ELSE 'pause' END,
            wake_at = CASE WHEN w.until IS NULL THEN lane.wake_at ELSE w.until END
        FROM wrong w WHERE lane.ctid = w.tid
        RETURNING w.until
    )
    SELECT count(until) INTO parked FROM mended;

    WITH old AS (
        DELETE FROM lane WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM lane WHERE state = 'idle' AND served_at < now() - interval '1 day'
            LIMIT 1000 FOR UPDATE SKIP LOCKED))
        RETURNING lane_id
    ),
    names AS (DELETE FROM lane_name WHERE lane_id IN (SELECT lane_id FROM old))
    SELECT count(*) INTO deleted FROM old;
    RETURN NEXT;
END $$;

-- What was enqueued before there were lanes.
SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM (
    SELECT lane_id, min(run_at) AS run_at FROM job WHERE state = 'available' AND crash_count = 0 GROUP BY lane_id
) AS waiting HAVING count(*) > 0;
