-- row_security_enable: enable row security between tenants: create the policies and grants of fairlead_tenant.
-- It is safe to repeat.
-- Takes   nothing
-- Returns nothing
-- Locks   one table at a time for a moment. It waits 500 ms for a lock, lets others go first for a second, and
--         tries again for 120 s. So no transaction waits for two tables
-- Needs   the owner of the tables, and no transaction around it. Without the role, and the right to create it,
--         it only warns. Statements for tenants run as fairlead_tenant in a transaction that names the tenants:
--         SET LOCAL ROLE, and fairlead.tenants (text[]). Without the setting they see no rows. Spec: R35.
CREATE PROCEDURE row_security_enable() LANGUAGE plpgsql AS $$
DECLARE
    condition constant text := 'tenant_id = ANY ((SELECT nullif(current_setting(''fairlead.tenants'', true), ''''))::text[])';
    deadline_at constant timestamptz := clock_timestamp() + interval '120 seconds';
    table_rights text[];
    row_condition text;
    locked boolean;
BEGIN
    BEGIN
        IF NOT tenant_role() THEN
            RETURN;
        END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        PERFORM tenant_role();  -- a migration of another database created it at the same moment
    END;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO fairlead_tenant', current_schema());
    -- these are of no tenant: the values of tiers, and whether the owner of a refresh is alive
    GRANT SELECT ON credential_detail, tenant_tier TO fairlead_tenant;
    GRANT SELECT (session_id, lost_at, stopped_at) ON worker_session TO fairlead_tenant;
    GRANT EXECUTE ON FUNCTION lane_touch_for_tenant TO fairlead_tenant;
    COMMIT;
    -- each table with tenants' rows, and its rights; job comes last, so its policy shows that all others are done
    FOREACH table_rights SLICE 1 IN ARRAY ARRAY[
        ['dead_letter', 'SELECT, UPDATE'], ['connection', 'SELECT, INSERT, UPDATE, DELETE'],
        ['credential', 'SELECT, INSERT, UPDATE'], ['refresh_attempt', 'SELECT, DELETE'], ['refresh_backoff', ''],
        ['data_key', 'SELECT, INSERT'], ['observed_limit', 'SELECT'],
        ['audit', 'SELECT, INSERT (audit_id, tenant_id, actor, act, provider, connection_id, details)'],
        ['gate_override', 'SELECT, INSERT, UPDATE, DELETE'], ['lane_name', 'SELECT'], ['lane', 'SELECT, UPDATE'],
        ['pause', 'SELECT, INSERT, UPDATE, DELETE'], ['tenant_setting', 'SELECT, INSERT, UPDATE, DELETE'],
        ['concurrency_cap', 'SELECT, INSERT, UPDATE, DELETE'], ['job', 'SELECT, INSERT, UPDATE']]
    LOOP
        -- the key of a pause of a whole tenant is the tenant's id
        row_condition := condition || CASE WHEN table_rights[1] = 'pause'
            THEN ' OR scope = ''tenant'' AND ' || replace(condition, 'tenant_id', 'key') ELSE '' END;
        LOOP
            PERFORM set_config('lock_timeout', '500ms', true);
            BEGIN
                EXECUTE format('DROP POLICY IF EXISTS tenants_see_theirs ON %I', table_rights[1]);
                EXECUTE format('CREATE POLICY tenants_see_theirs ON %I TO fairlead_tenant USING (%s) WITH CHECK (%s)',
                               table_rights[1], row_condition, row_condition);
                IF table_rights[2] <> '' THEN
                    EXECUTE format('GRANT %s ON %I TO fairlead_tenant', table_rights[2], table_rights[1]);
                END IF;
                locked := true;
            EXCEPTION WHEN lock_not_available THEN
                IF clock_timestamp() > deadline_at THEN
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
