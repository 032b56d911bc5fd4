-- 0013_tenant_wall: what is done for some tenants cannot reach the rows of others, whatever its statement says (R35).
-- Phase   pre (the version before it never takes the role fairlead_tenant: nothing changes for it)
-- Needs   0012_call_waits. The right to create roles, or the role made beforehand; without either all goes on without
--         the wall, and `fairlead doctor` says so
--
-- Statements made for tenants run as fairlead_tenant, in a transaction that says whose: SET LOCAL ROLE, and
-- fairlead.tenants, a text[]. No setting, or an empty one: no rows. It is neither owner nor engine, and cannot log in.

-- The order of lanes is one of all tenants: who puts a job into it sees the others' lanes, but tells nothing of them.
CREATE FUNCTION lane_touch_for_tenant(lane_ids uuid[], due_ats timestamptz[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER AS $$
    SELECT lane_touch(lane_ids, due_ats)
$$;
DO $$
BEGIN
    -- A caller's temporary tables must not decide what runs with other rights.
    EXECUTE format('ALTER FUNCTION lane_touch_for_tenant SET search_path = %s', (
        SELECT string_agg(quote_ident(name), ', ') || ', pg_temp' FROM unnest(current_schemas(false)) AS name));
END $$;
REVOKE ALL ON FUNCTION lane_touch_for_tenant FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lane_touch_for_tenant TO fairlead_engine;

-- The role, and that the engine may take it; whether it is there.
CREATE FUNCTION tenant_role() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fairlead_tenant') THEN
        CREATE ROLE fairlead_tenant NOLOGIN;
    END IF;
    IF NOT pg_has_role('fairlead_engine', 'fairlead_tenant', 'MEMBER') THEN
        GRANT fairlead_tenant TO fairlead_engine;
    END IF;
    RETURN true;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING 'this user may not make or grant the role fairlead_tenant' USING HINT = 'see `fairlead doctor`';
        RETURN EXISTS (SELECT FROM pg_roles WHERE rolname = 'fairlead_tenant');
END $$;

-- Raises the wall; may be called again, by the owner of the tables, once a role is there that could not be made. Each
-- table is locked by itself, for a moment: whoever is at work waits for no two of them. Whoever waits for a lock makes
-- everybody behind it wait: so it waits for 500 ms, lets them go first for a second, and tries again, for 120 s (E10).
CREATE PROCEDURE tenant_wall() LANGUAGE plpgsql AS $$
DECLARE
    mine constant text := 'tenant_id = ANY ((SELECT nullif(current_setting(''fairlead.tenants'', true), ''''))::text[])';
    gives_up_at constant timestamptz := clock_timestamp() + interval '120 seconds';
    rights text[];
    allowed text;
    locked boolean;
BEGIN
    BEGIN
        IF NOT tenant_role() THEN
            RETURN;
        END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        PERFORM tenant_role();  -- a migration run in another database made it at the same moment
    END;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO fairlead_tenant', current_schema());
    -- of no tenant: what a tier is worth, and whether the owner of a refresh lives
    GRANT SELECT ON credential_detail, tenant_tier TO fairlead_tenant;
    GRANT SELECT (session_id, lost_at, stopped_at) ON worker_session TO fairlead_tenant;
    GRANT EXECUTE ON FUNCTION lane_touch_for_tenant TO fairlead_tenant;
    COMMIT;
    -- each table of tenants, and what is done to it for one of them; job comes last, it tells that all of them have it
    FOREACH rights SLICE 1 IN ARRAY ARRAY[
        ['dead_letter', 'SELECT, UPDATE'], ['connection', 'SELECT, INSERT, UPDATE, DELETE'],
        ['credential', 'SELECT, INSERT, UPDATE'], ['rotation', 'SELECT, DELETE'], ['withheld_answer', ''],
        ['data_key', 'SELECT, INSERT'], ['learnt_limit', 'SELECT'], ['audit', 'SELECT, INSERT'],
        ['gate_switch', 'SELECT, INSERT, UPDATE, DELETE'], ['lane_name', 'SELECT'], ['lane', 'SELECT, UPDATE'],
        ['pause', 'SELECT, INSERT, UPDATE, DELETE'], ['tenant_share', 'SELECT, INSERT, UPDATE, DELETE'],
        ['running_cap', 'SELECT, INSERT, UPDATE, DELETE'], ['job', 'SELECT, INSERT, UPDATE']]
    LOOP
        -- the pause of a whole tenant has its name as the key
        allowed := mine || CASE WHEN rights[1] = 'pause'
            THEN ' OR scope = ''tenant'' AND ' || replace(mine, 'tenant_id', 'key') ELSE '' END;
        LOOP
            PERFORM set_config('lock_timeout', '500ms', true);
            BEGIN
                EXECUTE format('DROP POLICY IF EXISTS tenants_see_theirs ON %I', rights[1]);
                EXECUTE format('CREATE POLICY tenants_see_theirs ON %I TO fairlead_tenant USING (%s) WITH CHECK (%s)',
                               rights[1], allowed, allowed);
                IF rights[2] <> '' THEN
                    EXECUTE format('GRANT %s ON %I TO fairlead_tenant', rights[2], rights[1]);
                END IF;
                locked := true;
            EXCEPTION WHEN lock_not_available THEN
                IF clock_timestamp() > gives_up_at THEN
                    RAISE;
                END IF;
                locked := false;
            END;
            COMMIT;
            EXIT WHEN locked;
            PERFORM pg_sleep(1);
        END LOOP;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION tenant_role FROM PUBLIC;
REVOKE ALL ON PROCEDURE tenant_wall FROM PUBLIC;
