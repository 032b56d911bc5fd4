-- lanes: the order in which tenants are served.
--
-- A lane is the work of one (queue, kind, provider, priority, tenant, group). It is ready (a claim may take
-- from it), parked (a claim looks at it again at wake_at), or idle (it has no work). docs/states.md draws it.
--
-- Rows of lane change with every claim, so everything that reads them must survive a pinned snapshot. There
-- is no unique index, because each update would walk the dead versions. Every index that is read ends in
-- vtime, which only grows: scans begin at a floor, and the newest version of a lane is the one with the
-- greatest vtime. Spec: Q6, Q7, R16-R18.

-- The lanes that exist: the one unique key, in rows that never change.
CREATE TABLE lane_name (
    lane_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    group_key text NOT NULL
);
CREATE INDEX lane_name_tenant_idx ON lane_name (tenant_id, group_key);
CREATE INDEX lane_name_group_idx ON lane_name (group_key) WHERE group_key <> '';
ALTER TABLE lane_name ENABLE ROW LEVEL SECURITY;
ALTER TABLE lane_name FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON lane_name TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON lane_name TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_name TO fairlead_engine;

-- The order of the columns and the one CHECK keep an update cheap, as in job. park_reason is due, empty, cap
-- or pause. A parked lane has a reason and wake_at; no other lane has one.
CREATE TABLE lane (
    lane_id uuid NOT NULL,
    vtime bigint NOT NULL,
    -- no job before (mark_at, mark_id) is available: where a claim begins to read
    mark_at timestamptz NOT NULL DEFAULT '-infinity',
    mark_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    served bigint NOT NULL DEFAULT 0,
    -- when it was last served or made ready: it has waited for its turn since then
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
CREATE INDEX lane_cap_idx ON lane (tenant_id, lane_cap_span(wake_at), level, vtime) WHERE park_reason = 'cap';
CREATE INDEX lane_group_cap_idx ON lane (group_key, lane_cap_span(wake_at), level, vtime)
    WHERE park_reason = 'cap' AND group_key <> '';
CREATE INDEX lane_cap_wait_idx ON lane (tenant_id, lane_cap_span(wake_at), served_at) WHERE park_reason = 'cap';
CREATE INDEX lane_group_cap_wait_idx ON lane (group_key, lane_cap_span(wake_at), served_at)
    WHERE park_reason = 'cap' AND group_key <> '';
ALTER TABLE lane ENABLE ROW LEVEL SECURITY;
ALTER TABLE lane FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON lane TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY reader_sees_its_tenant ON lane TO fairlead_reader
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON lane TO fairlead_engine;

-- Where scans of ready lanes begin, for each class of each kind; one process raises them each second. They
-- rise where no lane is ready, too: work that comes one by one leaves its class empty again and again.
CREATE TABLE lane_floor (
    queue text NOT NULL,
    level smallint NOT NULL,
    kind text NOT NULL,
    vtime bigint NOT NULL DEFAULT 0,
    -- where the class was when the floor was last raised: the next floor. A statement that makes a lane ready
    -- meanwhile may not have committed yet
    rising bigint NOT NULL DEFAULT 0,
    -- the transactions that wrote when `rising` was noted: the floor follows once all of them have ended,
    -- because one may have made a lane ready and commit late. It waits at most 15 s: a transaction that is
    -- open for hours makes no lanes, and the sweep finds what else comes so late
    noted_by xid8 NOT NULL DEFAULT '0',
    noted_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (queue, level, kind)
) WITH (fillfactor = 10);
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_floor TO fairlead_engine;

-- Where scans of parked lanes begin: what was due before has been woken.
CREATE TABLE lane_wake_floor (
    wake_at timestamptz NOT NULL,
    -- the oldest transaction that may have rows left in lane_wake: a lower bound of `seen`
    written_by xid8 NOT NULL,
    -- what this snapshot sees of lane_wake has been seen to. Looks read later rows, and those of the
    -- transactions that were at work then, each by its id
    seen pg_snapshot NOT NULL DEFAULT '1:1:',
    -- the next floor, once no row is left that it sees
    rising pg_snapshot NOT NULL DEFAULT '1:1:'
) WITH (fillfactor = 10);
INSERT INTO lane_wake_floor VALUES ('-infinity', '0');
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_wake_floor TO fairlead_engine;

-- The virtual time of the last lane that left a class empty: a lane that joins then gets no credit. A
-- sequence, because a row that changes with every claim would grow without end under a pinned snapshot.
CREATE SEQUENCE lane_clock AS bigint MINVALUE 0 START 0;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE lane_clock TO fairlead_engine;

-- Lanes to be made ready by the next claim, from transactions of unknown length, which must not lock the lane
-- itself.
CREATE TABLE lane_wake (
    lane_id uuid NOT NULL,
    due_at timestamptz NOT NULL,
    written_by xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
CREATE INDEX lane_wake_written_idx ON lane_wake (written_by);
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_wake TO fairlead_engine;
