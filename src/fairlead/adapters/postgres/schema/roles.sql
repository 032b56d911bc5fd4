-- roles: the roles that statements run as, and what they may see.
--
-- fairlead_engine sees all tenants. fairlead_door sees the one tenant in fairlead.tenant_id, which SET LOCAL sets,
-- and nothing without it. fairlead_tenant, which functions/tenant_role.sql makes, sees the tenants in
-- fairlead.tenants; its policies and grants stand in functions/row_security_enable.sql. Roles belong to the whole server.
-- The files name no schema: the connection's search_path decides. Spec: R35.
DO $$
DECLARE role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['fairlead_engine', 'fairlead_door'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
            END IF;
            -- USAGE, not MEMBER: in PostgreSQL 16 and newer a role's creator may at first only grant it
            IF NOT pg_has_role(current_user, role_name, 'USAGE') THEN
                EXECUTE format('GRANT %I TO %I', role_name, current_user);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- an installation in another database made it at the same moment
        END;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role_name);
    END LOOP;
END $$;

GRANT SELECT ON migration TO fairlead_engine, fairlead_door;
