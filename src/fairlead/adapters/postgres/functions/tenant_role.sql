-- tenant_role: create the role fairlead_tenant, and allow the engine to assume it; return whether the role
-- exists.
CREATE FUNCTION tenant_role() RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fairlead_tenant') THEN
        CREATE ROLE fairlead_tenant NOLOGIN;
    END IF;
    -- PostgreSQL 16: the creator of a role is a member of it, but may not assume it until it is granted
    IF NOT pg_has_role('fairlead_engine', 'fairlead_tenant', CASE
        WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN
        GRANT fairlead_tenant TO fairlead_engine;
    END IF;
    RETURN true;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING 'this user may not make or grant the role fairlead_tenant' USING HINT = 'see `fairlead doctor`';
        RETURN EXISTS (SELECT FROM pg_roles WHERE rolname = 'fairlead_tenant');
END $$;

REVOKE ALL ON FUNCTION tenant_role FROM PUBLIC;
