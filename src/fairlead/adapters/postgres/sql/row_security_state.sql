-- row_security_state: check whether row security restricts statements for tenants to their rows (R35).
-- Takes   schema (of fairlead's tables)
-- Returns one row: engine and tenant (the names of the roles), role (the tenant role exists), bound (row
--         security binds that role: it is no superuser and has no BYPASSRLS), member (this user may assume it),
--         guarded (each table with tenants' rows has row security and the policy of the procedure
--         row_security_enable, and the role sees nothing else of it: neither as its owner nor by another
--         policy)
-- Locks   nothing
-- Needs   nothing. Since PostgreSQL 16 a member of a role may lack the right to assume it
WITH role_name AS (
    SELECT
        coalesce((SELECT r.rolname FROM pg_policy p JOIN pg_roles r ON r.oid = p.polroles[1]
                  JOIN pg_class c ON c.oid = p.polrelid
                  WHERE c.relnamespace = our_schema.oid AND c.relname = 'job' AND p.polname = 'engine_sees_all'),
                 'fairlead_engine')::text AS engine,
        coalesce((SELECT substring(prosrc FROM 'CREATE ROLE "?(\w+)') FROM pg_proc
                  WHERE pronamespace = our_schema.oid AND proname = 'tenant_role'), 'fairlead_tenant') AS tenant,
        our_schema.oid AS namespace
    FROM (SELECT) AS always LEFT JOIN pg_namespace our_schema ON our_schema.nspname = :schema::text
),
tenant AS (
    SELECT r.oid, r.rolsuper, r.rolbypassrls
    FROM (SELECT) AS always LEFT JOIN pg_roles r ON r.rolname = (SELECT role_name.tenant FROM role_name)
),
table_state AS (
    SELECT tenant_table.name, c.relrowsecurity AND NOT pg_has_role(tenant.oid, c.relowner, 'USAGE')
        AND count(*) FILTER (WHERE p.polname = 'tenants_see_theirs' AND p.polcmd = '*' AND tenant.oid = ANY (p.polroles)
            AND pg_get_expr(p.polqual, p.polrelid) LIKE '%fairlead.tenants%'
            AND pg_get_expr(p.polwithcheck, p.polrelid) = pg_get_expr(p.polqual, p.polrelid)) = 1
        AND count(*) FILTER (WHERE p.polname <> 'tenants_see_theirs' AND p.polpermissive AND EXISTS (
            SELECT FROM unnest(p.polroles) AS policy_role  -- 0: PUBLIC
            WHERE CASE policy_role WHEN 0 THEN true
                ELSE pg_has_role(tenant.oid, policy_role, 'USAGE') END)) = 0 AS is_guarded
    FROM unnest(ARRAY['audit', 'concurrency_cap', 'connection', 'credential', 'data_key', 'dead_letter',
                      'gate_override', 'job', 'lane', 'lane_name', 'observed_limit', 'pause', 'refresh_attempt',
                      'refresh_backoff', 'tenant_setting']) AS tenant_table (name)
    CROSS JOIN tenant
    LEFT JOIN pg_class c ON c.relnamespace = (SELECT namespace FROM role_name) AND c.relname = tenant_table.name
    LEFT JOIN pg_policy p ON p.polrelid = c.oid
    GROUP BY tenant_table.name, c.oid, c.relrowsecurity, c.relowner, tenant.oid
)
SELECT role_name.engine, role_name.tenant, oid IS NOT NULL AS role,
    coalesce(NOT rolsuper AND NOT rolbypassrls, false) AS bound,
    coalesce(pg_has_role(session_user, oid, CASE
        WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END), false) AS member,
    (SELECT bool_and(coalesce(is_guarded, false)) FROM table_state) AS guarded
FROM tenant CROSS JOIN role_name
