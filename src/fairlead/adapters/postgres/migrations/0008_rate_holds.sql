-- 0008_rate_holds: a group waits for its turn at the provider's limits, beside what people pause (Q7, R17, R26).
-- Phase   pre (the version before it does not write such holds; its claims heed them, as they heed every pause)
-- Needs   0002_lanes
ALTER TABLE pause DROP CONSTRAINT pause_scope_check;
ALTER TABLE pause ADD CONSTRAINT pause_scope_check
    CHECK (scope IN ('queue', 'kind', 'tenant', 'provider', 'group', 'rate'));
ALTER TABLE pause DROP CONSTRAINT pause_check;
ALTER TABLE pause ADD CONSTRAINT pause_check CHECK (tenant_id = '' OR scope IN ('group', 'rate'));

-- As in 0002, with the hold of a group for its rate.
CREATE OR REPLACE FUNCTION paused_until(of_queue text, of_kind text, of_provider text, of_tenant text, of_group text)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT max(until) FROM pause
    WHERE until > now() AND (scope, tenant_id, key) IN (
        VALUES ('queue', '', of_queue), ('kind', '', of_kind), ('provider', '', of_provider),
               ('tenant', '', of_tenant), ('group', '', of_group), ('group', of_tenant, of_group),
               ('rate', of_tenant, of_group))
        AND (scope = 'kind' OR NOT is_own(of_kind))
$$;

CREATE OR REPLACE FUNCTION held_until(of_queue text, of_kind text, of_provider text, of_tenant text, of_group text)
RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT max(until) FROM (
        SELECT until FROM pause
        WHERE until > now() AND (scope, tenant_id, key) IN (
            VALUES ('queue', '', of_queue), ('kind', '', of_kind), ('provider', '', of_provider),
                   ('tenant', '', of_tenant), ('group', '', of_group), ('group', of_tenant, of_group),
                   ('rate', of_tenant, of_group))
            AND (scope = 'kind' OR NOT is_own(of_kind))
        FOR SHARE) AS in_force
$$;
