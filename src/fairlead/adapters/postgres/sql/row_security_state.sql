-- row_security_state: whether statements made for tenants can be kept to the rows of these (R35).
-- Takes   schema (of our tables)
-- Returns one row: engine and tenant (the names of the roles), role (there is the latter), bound (row-level security binds it: no superuser, no BYPASSRLS),
--         member (this user may take it), guarded (each table of tenants has row-level security and the policy of
--         the procedure row_security_enable, and shows the role no more than that: neither as its owner nor by another policy)
-- Locks   nothing
-- Needs   nothing. In PostgreSQL 16 and newer a member may be kept from taking its role
WITH named AS (
    SELECT
        coalesce((SELECT r.rolname FROM pg_policy p JOIN pg_roles r ON r.oid = p.polroles[1]
                  JOIN pg_class c ON c.oid = p.polrelid
                  WHERE c.relnamespace = here.oid AND c.relname = 'job' AND p.polname = 'engine_sees_all'),
                 'fairlead_engine')::text AS engine,
        coalesce((SELECT substring(prosrc FROM 'CREATE ROLE "?(\w+)') FROM pg_proc
                  WHERE pronamespace = here.oid AND proname = 'tenant_role'), 'fairlead_tenant') AS tenant,
        here.oid AS namespace
    FROM (SELECT) AS always LEFT JOIN pg_namespace here ON here.nspname = :schema::text
),
tenant AS (
    SELECT r.oid, r.rolsuper, r.rolbypassrls
    FROM (SELECT) AS always LEFT JOIN pg_roles r ON r.rolname = (SELECT named.tenant FROM named)
),
guarded AS (
    SELECT walled.name, c.relrowsecurity AND NOT pg_has_role(tenant.oid, c.relowner, 'USAGE')
        AND count(*) FILTER (WHERE p.polname = 'tenants_see_theirs' AND p.polcmd = '*' AND tenant.oid = ANY (p.polroles)
            AND pg_get_expr(p.polqual, p.polrelid) LIKE '%fairlead.tenants%'
            AND pg_get_expr(p.polwithcheck, p.polrelid) = pg_get_expr(p.polqual, p.polrelid)) = 1
        AND count(*) FILTER (WHERE p.polname <> 'tenants_see_theirs' AND p.polpermissive AND EXISTS (
            SELECT FROM unnest(p.polroles) AS whose  -- 0: everybody
            WHERE CASE whose WHEN 0 THEN true ELSE pg_has_role(tenant.oid, whose, 'USAGE') END)) = 0 AS is_so
    FROM unnest(ARRAY['audit', 'concurrency_cap', 'connection', 'credential', 'data_key', 'dead_letter',
                      'gate_override', 'job', 'lane', 'lane_name', 'observed_limit', 'pause', 'refresh_attempt',
                      'refresh_backoff', 'tenant_setting']) AS walled (name)
    CROSS JOIN tenant
    LEFT JOIN pg_class c ON c.relnamespace = (SELECT namespace FROM named) AND c.relname = walled.name
    LEFT JOIN pg_policy p ON p.polrelid = c.oid
    GROUP BY walled.name, c.oid, c.relrowsecurity, c.relowner, tenant.oid
)
SELECT named.engine, named.tenant, oid IS NOT NULL AS role,
    coalesce(NOT rolsuper AND NOT rolbypassrls, false) AS bound,
    coalesce(pg_has_role(session_user, oid, CASE
        WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END), false) AS member,
    (SELECT bool_and(coalesce(is_so, false)) FROM guarded) AS guarded
FROM tenant CROSS JOIN named
