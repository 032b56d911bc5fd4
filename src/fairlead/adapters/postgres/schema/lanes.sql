-- lanes: the order in which tenants are served.
--
-- A lane is the work of one (queue, kind, provider, priority, tenant, group). It is ready (a claim may take
-- jobs from it), parked (it is checked again at wake_at), or idle (it has no work). docs/states.md draws the states.
--
-- Rows of lane change with every claim, and while an old snapshot is open their dead versions stay. So there is no
-- unique index, because each update would read all dead versions. Indexes for claims end in vtime, which only grows:
-- scans begin at a floor, and the current version of a lane is the one with the greatest vtime.
-- Spec: Q6, Q7, R16-R18.

-- The lanes that exist. Its rows never change, so it can have the unique key.
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

-- The order of the columns and the few CHECKs keep updates cheap, as in job. park_reason is due, empty, cap or pause;
-- it and wake_at are set while the lane is parked.
CREATE TABLE lane (
    lane_id uuid NOT NULL,
    vtime bigint NOT NULL,
    -- claims begin to read at (mark_at, mark_id): no earlier job is available
    mark_at timestamptz NOT NULL DEFAULT '-infinity',
    mark_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    served bigint NOT NULL DEFAULT 0,
    -- when it last gave a job or became ready; it has waited for its turn since then
    served_at timestamptz NOT NULL DEFAULT now(),
    -- copies of settings: stride is 1000 / weight; capped below says whether a cap applies to its tenant or group
    stride integer NOT NULL DEFAULT 1000,
    in_a_row integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL,
    -- its class: its priority, or a more urgent one after a long wait
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

-- Where scans of ready lanes begin, for each class of each kind. One process raises the floors each second, also those
-- without a ready lane, because single jobs leave their class empty again and again.
CREATE TABLE lane_floor (
    queue text NOT NULL,
    level smallint NOT NULL,
    kind text NOT NULL,
    vtime bigint NOT NULL DEFAULT 0,
    -- the next floor: where the class was at noted_at. A statement that made a lane ready below it may not have
    -- committed yet
    rising bigint NOT NULL DEFAULT 0,
    -- the floor becomes `rising` once all transactions that were writing at noted_at have ended, because one of them
    -- may have made a lane ready and commit late. It waits at most 15 s: a transaction that is open for hours
    -- creates no lanes, and the sweep finds other late lanes
    noted_by xid8 NOT NULL DEFAULT '0',
    noted_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (queue, level, kind)
) WITH (fillfactor = 10);
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_floor TO fairlead_engine;

-- Where scans of parked lanes begin: every lane with an earlier wake_at has been woken.
CREATE TABLE lane_wake_floor (
    wake_at timestamptz NOT NULL,
    -- the oldest transaction that may have rows left in lane_wake: a lower bound of `seen`
    written_by xid8 NOT NULL,
    -- all rows of lane_wake that this snapshot sees have been handled. lane_wake_up reads later rows, and those of
    -- the transactions that were in progress then, each by its id
    seen pg_snapshot NOT NULL DEFAULT '1:1:',
    -- the next value of `seen`, once none of the rows that it sees are left
    rising pg_snapshot NOT NULL DEFAULT '1:1:'
) WITH (fillfactor = 10);
INSERT INTO lane_wake_floor VALUES ('-infinity', '0');
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_wake_floor TO fairlead_engine;

-- The greatest virtual time that a class has reached. A lane that joins an empty class starts there, and so gets no
-- credit. It is a sequence, because under an old snapshot a row that changes with every claim would leave a dead
-- version each time.
CREATE SEQUENCE lane_clock AS bigint MINVALUE 0 START 0;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE lane_clock TO fairlead_engine;

-- Lanes that the next claim must make ready. Transactions of unknown length write here, because they must not lock the
-- lane itself.
CREATE TABLE lane_wake (
    lane_id uuid NOT NULL,
    due_at timestamptz NOT NULL,
    written_by xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
CREATE INDEX lane_wake_written_idx ON lane_wake (written_by);
GRANT SELECT, INSERT, UPDATE, DELETE ON lane_wake TO fairlead_engine;
