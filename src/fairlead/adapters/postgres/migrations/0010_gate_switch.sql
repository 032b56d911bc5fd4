-- 0010_gate_switch: what people switch by hand at the gate (G6, G8, G12).
-- Phase   pre (the version before it neither reads nor writes it: a process of it does not heed a switch)
-- Needs   0001_ground_floor

-- ---- switches ------------------------------------------------------------------------------------
-- '' is "of all": nothing named is everything, a provider alone all of its connections, all three one connection.
-- A process counts by Redis or by its share, never both: so only everything can be degraded.
-- on_since, step_s: limits come back for a growing share of the connections, a step each step_s (policy/gate/switch.py);
-- NULL: they do not.
CREATE TABLE gate_switch (
    act text NOT NULL CHECK (act IN ('isolated', 'disabled', 'degraded')),
    tenant_id text NOT NULL DEFAULT '',
    provider text NOT NULL DEFAULT '',
    bucket text NOT NULL DEFAULT '',
    reason text NOT NULL CHECK (reason <> ''),
    actor text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    on_since timestamptz,
    step_s float8 CHECK (step_s > 0),
    PRIMARY KEY (act, tenant_id, provider, bucket),
    CHECK ((tenant_id = '') = (bucket = '') AND (tenant_id = '' OR provider <> '')),
    CHECK (act <> 'degraded' OR provider = ''),
    CHECK ((on_since IS NULL) = (step_s IS NULL) AND (on_since IS NULL OR act = 'disabled'))
);

ALTER TABLE gate_switch ENABLE ROW LEVEL SECURITY;
ALTER TABLE gate_switch FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_sees_all ON gate_switch TO fairlead_engine USING (true) WITH CHECK (true);
CREATE POLICY door_sees_its_tenant ON gate_switch TO fairlead_door
    USING (tenant_id = current_setting('fairlead.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('fairlead.tenant_id', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON gate_switch TO fairlead_engine;
