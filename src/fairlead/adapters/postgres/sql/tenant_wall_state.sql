-- tenant_wall_state: whether statements made for tenants can be kept to the rows of these (R35).
-- Takes   nothing
-- Gives   one row: role (there is fairlead_tenant), bound (row-level security binds it: no superuser, no BYPASSRLS),
--         member (this user may take it), guarded (the policies of migration 0014 are there)
-- Locks   nothing
-- Needs   nothing. In PostgreSQL 16 and newer a member may be kept from taking its role
SELECT r.oid IS NOT NULL AS role,
    coalesce(NOT r.rolsuper AND NOT r.rolbypassrls, false) AS bound,
    coalesce(pg_has_role(session_user, r.oid, CASE
        WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END), false) AS member,
    EXISTS (SELECT FROM pg_policy WHERE polname = 'tenants_see_theirs' AND polrelid = to_regclass('job')) AS guarded
FROM (SELECT) AS always LEFT JOIN pg_roles r ON r.rolname = 'fairlead_tenant'
