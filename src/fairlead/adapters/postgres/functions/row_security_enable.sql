-- row_security_enable: enable row security between tenants: the policies and grants of the role fairlead_tenant. Safe
-- to repeat.
-- Takes   nothing
-- Returns nothing
-- Locks   each table alone for a moment: it waits 500 ms for a lock, lets others go first for a second, and
--         tries again for 120 s. So no transaction waits for two of them
-- Needs   the owner of the tables, and no transaction around it. Without the role, and the right to make it, it
--         does nothing but warn. Statements for tenants run as fairlead_tenant in a transaction that names
--         them: SET LOCAL ROLE, and fairlead.tenants (text[]); without the setting they see no rows. Spec: R35.
CREATE PROCEDURE row_security_enable() LANGUAGE plpgsql AS $$
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
    -- each table of tenants and its change for one of them; job comes last and shows that all others are done
    FOREACH rights SLICE 1 IN ARRAY ARRAY[
        ['dead_letter', 'SELECT, UPDATE'], ['connection', 'SELECT, INSERT, UPDATE, DELETE'],
        ['credential', 'SELECT, INSERT, UPDATE'], ['refresh_attempt', 'SELECT, DELETE'], ['refresh_backoff', ''],
        ['data_key', 'SELECT, INSERT'], ['observed_limit', 'SELECT'],
        ['audit', 'SELECT, INSERT (audit_id, tenant_id, actor, act, provider, connection_id, details)'],
        ['gate_override', 'SELECT, INSERT, UPDATE, DELETE'], ['lane_name', 'SELECT'], ['lane', 'SELECT, UPDATE'],
        ['pause', 'SELECT, INSERT, UPDATE, DELETE'], ['tenant_setting', 'SELECT, INSERT, UPDATE, DELETE'],
        ['concurrency_cap', 'SELECT, INSERT, UPDATE, DELETE'], ['job', 'SELECT, INSERT, UPDATE']]
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

REVOKE ALL ON PROCEDURE row_security_enable FROM PUBLIC;
