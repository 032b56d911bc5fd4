-- roles: the roles that statements run as, and what they may see.
--
-- fairlead_engine sees all tenants. fairlead_reader reads the rows of the one tenant in fairlead.tenant_id, which
-- SET LOCAL sets, and no rows without it. fairlead_tenant sees the tenants in fairlead.tenants;
-- functions/tenant_role.sql creates it, functions/row_security_enable.sql holds its policies and grants. Roles belong
-- to the whole server. The files name no schema: the connection's search_path decides. Spec: R35.
DO $$
DECLARE role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['fairlead_engine', 'fairlead_reader'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
            END IF;
            -- USAGE, not MEMBER: since PostgreSQL 16 the creator of a role may at first only grant it
            IF NOT pg_has_role(current_user, role_name, 'USAGE') THEN
                EXECUTE format('GRANT %I TO %I', role_name, current_user);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- an installation in another database created it at the same moment
        END;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role_name);
    END LOOP;
END $$;

GRANT SELECT ON migration TO fairlead_engine, fairlead_reader;
