-- 0002_lanes: lanes, their shares, caps and pauses, and what makes them ready (Q6, Q7, R16-R18).
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

-- A plain column, filled in once: a generated one is worked out anew for each update of a job, or at least prepared
-- for it (PostgreSQL reads its expression again for every row that is updated). Who raises a priority sets it too.
CREATE FUNCTION job_lane() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.lane_id := lane_of(NEW.queue, NEW.kind, NEW.provider, NEW.priority, NEW.tenant_id, NEW.group_key);
    RETURN NEW;
END $$;
-- for inserts that say nothing of lanes, those of the version before among them
CREATE TRIGGER job_lane BEFORE INSERT ON job FOR EACH ROW WHEN (NEW.lane_id IS NULL) EXECUTE FUNCTION job_lane();
UPDATE job SET lane_id = lane_of(queue, kind, provider, priority, tenant_id, group_key);
ALTER TABLE job ALTER COLUMN lane_id SET NOT NULL;

CREATE INDEX job_lane_idx ON job (lane_id, run_at, job_id) WHERE state = 'available' AND crash_count = 0;
-- for caps: what runs of a group
CREATE INDEX job_running_group_idx ON job (group_key) WHERE state = 'running' AND group_key <> '';

-- Which lanes there are: the one unique key, in rows that never change.
CREATE TABLE lane_name (
    lane_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    group_key text NOT NULL
);
CREATE INDEX lane_name_tenant_idx ON lane_name (tenant_id, group_key);
CREATE INDEX lane_name_group_idx ON lane_name (group_key) WHERE group_key <> '';

-- In the order and with the one CHECK that make an update cheap (see job). park_reason is due, empty, cap or pause; a
-- parked lane has both a reason and wake_at, no other lane has one.
CREATE TABLE lane (
    lane_id uuid NOT NULL,
    vtime bigint NOT NULL,
    -- no job before (mark_at, mark_id) is available: where a claim begins to read
    mark_at timestamptz NOT NULL DEFAULT '-infinity',
    mark_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    served bigint NOT NULL DEFAULT 0,
    -- when it was last served or made ready: since then it waits for its turn
    served_at timestamptz NOT NULL DEFAULT now(),
    -- 1000 / weight, and whether a cap holds for its tenant or group: copies of what is set for them
    stride integer NOT NULL DEFAULT 1000,
    in_a_row integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL,
    -- the class it is served in: its priority, or a more urgent one after a long wait
    level smallint NOT NULL,
    state text NOT NULL CHECK (state IN ('ready', 'parked', 'idle')),
    capped boolean NOT NULL DEFAULT false,
    tenant_id text NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    provider text NOT NULL,
    group_key text NOT NULL,
    park_reason text,
    wake_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);
CREATE INDEX lane_find_idx ON lane (lane_id, vtime);
CREATE INDEX lane_ready_idx ON lane (queue, kind, level, vtime) WHERE state = 'ready';
CREATE INDEX lane_sibling_idx ON lane (queue, level, tenant_id, vtime) WHERE state = 'ready';
CREATE INDEX lane_wake_idx ON lane (wake_at) WHERE state = 'parked';
CREATE INDEX lane_cap_idx ON lane (tenant_id, vtime) WHERE park_reason = 'cap';
CREATE INDEX lane_group_cap_idx ON lane (group_key, vtime) WHERE park_reason = 'cap' AND group_key <> '';

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
CREATE TABLE lane_wake_floor (
    wake_at timestamptz NOT NULL,
    -- the same for lane_wake: all that older transactions wrote there has been seen to
    written_by xid8 NOT NULL
) WITH (fillfactor = 10);
INSERT INTO lane_wake_floor VALUES ('-infinity', '0');

-- The virtual time of the last lane that left a class empty: who comes then banks no credit. A sequence, because
-- a row that changes with every claim would grow without end under a pinned snapshot.
CREATE SEQUENCE lane_clock AS bigint MINVALUE 0 START 0;

-- Lanes to be made ready by the next claim: written where the lane itself must not be locked, by transactions
-- of unknown length.
CREATE TABLE lane_wake (
    lane_id uuid NOT NULL,
    due_at timestamptz NOT NULL,
    written_by xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
CREATE INDEX lane_wake_written_idx ON lane_wake (written_by);

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
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_name, lane, lane_floor, lane_wake_floor, lane_wake, tenant_tier,
    tenant_share, running_cap, pause TO fairlead_engine;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE lane_clock TO fairlead_engine;

-- ---- small questions ---------------------------------------------------------------------------

-- Kinds of our own: tokens are kept fresh and customers told, whatever else of theirs has to wait. Only a pause of the
-- kind itself holds such work, and no cap counts it.
CREATE FUNCTION is_own(of_kind text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT split_part(of_kind, '.', 1) IN ('token', 'event', 'dead_letter') AND of_kind LIKE '%.%'
$$;

-- Until when a lane of these names is paused; NULL if it is not.
CREATE FUNCTION paused_until(of_queue text, of_kind text, of_provider text, of_tenant text, of_group text)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT max(until) FROM pause
    WHERE until > now() AND (scope, tenant_id, key) IN (
        VALUES ('queue', '', of_queue), ('kind', '', of_kind), ('provider', '', of_provider),
               ('tenant', '', of_tenant), ('group', '', of_group), ('group', of_tenant, of_group))
        AND (scope = 'kind' OR NOT is_own(of_kind))
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
            AND (scope = 'kind' OR NOT is_own(of_kind))
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

CREATE FUNCTION is_capped(of_kind text, of_tenant text, of_group text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT is_own(of_kind) AND EXISTS (SELECT FROM running_cap WHERE (tenant_id, group_key) IN (
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
        is_capped(kind, tenant_id, group_key),
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
            -- a claim that does not see this job yet may be about to set the mark behind it: ask for the lane itself
            OR due_at < now() - interval '1 second'
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
        INSERT INTO lane_wake (lane_id, due_at)
        SELECT a.lane_id, a.due_at FROM unnest(lane_ids, due_ats) AS a (lane_id, due_at) WHERE a.lane_id = ANY(behind);
    END IF;
END $$;

-- Look again at lanes whose time has come, and at those that lane_wake names; at most `most` of each. Claims ask some
-- twenty times a second, mostly for nothing: so first whether there is anything.
CREATE FUNCTION lane_wake_up(most integer) RETURNS integer LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE seen_to record; woken integer := 0; named uuid[]; due_ats timestamptz[];
BEGIN
    SELECT f.wake_at, f.written_by INTO seen_to FROM lane_wake_floor f;
    IF EXISTS (SELECT FROM lane_wake WHERE written_by >= seen_to.written_by) THEN
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
    END IF;
    IF NOT EXISTS (SELECT FROM lane l WHERE l.state = 'parked' AND l.wake_at BETWEEN seen_to.wake_at AND now()) THEN
        RETURN woken;
    END IF;
    WITH due AS MATERIALIZED (
        SELECT l.*, l.ctid AS tid FROM lane l
        WHERE l.state = 'parked' AND l.wake_at BETWEEN seen_to.wake_at AND now()
        ORDER BY l.wake_at LIMIT most FOR UPDATE SKIP LOCKED
    ),
    seen AS MATERIALIZED (
        SELECT due.*, next.run_at, next.job_id,
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
            -- as in job_claim: who commits within a second may be before what is seen now
            mark_at = CASE WHEN now.run_at IS NULL THEN lane.mark_at
                           ELSE least(now.run_at, now() - interval '1 second') END,
            mark_id = CASE WHEN now.run_at IS NULL THEN lane.mark_id
                           WHEN now.run_at < now() - interval '1 second' THEN now.job_id
                           ELSE '00000000-0000-0000-0000-000000000000' END,
            served_at = CASE WHEN now.state = 'ready' THEN now() ELSE lane.served_at END
        FROM (
            SELECT seen.*, greatest(class.start, coalesce(
                    lane_last(seen.queue, seen.priority, seen.tenant_id) + seen.stride, seen.vtime))
                + seen.stride::bigint * (row_number() OVER (
                    PARTITION BY seen.queue, seen.priority, seen.tenant_id, seen.state
                    ORDER BY seen.vtime) - 1) AS joins
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

-- Places have become free: lanes parked for the cap of these tenants or groups are ready again, the first `most`, each
-- behind the one before it.
CREATE FUNCTION lane_uncap(tenants text[], groups text[], most integer) RETURNS void LANGUAGE sql VOLATILE
SET enable_seqscan = off AS $$
    UPDATE lane SET
        state = 'ready', park_reason = NULL, wake_at = NULL, served_at = now(),
        vtime = greatest(lane.vtime, waiting.start, waiting.last + lane.stride) + lane.stride::bigint * waiting.before
    FROM (
        SELECT held.tid, lane_start(held.queue, held.level, held.kind) AS start,
            lane_last(held.queue, held.level, held.tenant_id) AS last,
            row_number() OVER (PARTITION BY held.queue, held.level, held.tenant_id ORDER BY held.vtime) - 1 AS before
        FROM (
            SELECT l.ctid AS tid, l.queue, l.level, l.kind, l.tenant_id, l.vtime FROM lane l
            WHERE l.park_reason = 'cap' AND l.ctid = ANY(ARRAY(
                SELECT near.tid FROM (SELECT DISTINCT unnest(tenants)) AS freed (tenant_id) CROSS JOIN LATERAL (
                    SELECT c.ctid AS tid FROM lane c WHERE c.park_reason = 'cap' AND c.tenant_id = freed.tenant_id
                    ORDER BY c.vtime LIMIT least(most, 500)) AS near
                UNION
                SELECT near.tid FROM (SELECT DISTINCT unnest(groups)) AS freed (group_key) CROSS JOIN LATERAL (
                    SELECT c.ctid AS tid FROM lane c
                    WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = freed.group_key
                    ORDER BY c.vtime LIMIT least(most, 500)) AS near))
            ORDER BY l.vtime LIMIT least(most, 500) FOR UPDATE SKIP LOCKED
        ) AS held
    ) AS waiting
    WHERE lane.ctid = waiting.tid
$$;
