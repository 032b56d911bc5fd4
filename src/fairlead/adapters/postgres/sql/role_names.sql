-- role_names: read the names of the roles of the installation in a schema, and those for one without common
-- roles.
-- Takes   schema
-- Returns one row: engine (the role that sees all tenants; NULL: there is no installation), tenant (the role
--         that row security binds), owner (this user), own_tenant (a name that no other installation of the
--         server has)
-- Locks   nothing
-- Needs   nothing
SELECT
    (SELECT r.rolname FROM pg_catalog.pg_policy p JOIN pg_catalog.pg_roles r ON r.oid = p.polroles[1]
     JOIN pg_catalog.pg_class c ON c.oid = p.polrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = :schema::text AND c.relname = 'job' AND p.polname = 'engine_sees_all') AS engine,
    coalesce((SELECT substring(prosrc FROM 'CREATE ROLE "?(\w+)')
              FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
              WHERE n.nspname = :schema::text AND p.proname = 'tenant_role'), 'fairlead_tenant') AS tenant,
    current_user::text AS owner,
    'fairlead_tenant_' || left(md5(format('%s %s', current_database(), :schema::text)), 8) AS own_tenant
