-- server_check: read the facts about a server that decide whether fairlead may use it.
-- Takes   schema (of fairlead's tables)
-- Returns one row: version as a number, synchronous_commit, isolation by default, encoding, engine_role (the
--         role that sees all tenants; NULL: there are no tables), engine (this user has its rights), creators
--         (roles that may CREATE in this schema, or in one of this session's search_path, apart from its owner,
--         the owner of the tables and this user; quoted for SQL; what they create could run with others'
--         rights), revokes (the SQL that ends that), me (this user, quoted for SQL)
-- Locks   nothing
-- Needs   nothing
SELECT
    current_setting('server_version_num')::integer AS version,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('default_transaction_isolation') AS isolation,
    current_setting('server_encoding') AS encoding,
    sees_all.rolname AS engine_role,
    pg_has_role(current_user, sees_all.oid, 'USAGE') AS engine,
    exposure.creators, exposure.revokes, quote_ident(current_user) AS me
FROM (SELECT) AS always LEFT JOIN (
    pg_policy p JOIN pg_roles sees_all ON sees_all.oid = p.polroles[1]
    JOIN pg_class c ON c.oid = p.polrelid JOIN pg_namespace s ON s.oid = c.relnamespace
) ON s.nspname = :schema::text AND c.relname = 'job' AND p.polname = 'engine_sees_all'
CROSS JOIN (
    SELECT coalesce(string_agg(DISTINCT role_name, ', '), '') AS creators,
        coalesce(string_agg(format('REVOKE CREATE ON SCHEMA %I FROM %s;', nspname, role_name), ' ' ORDER BY nspname,
            role_name), '') AS revokes
    FROM (
        SELECT n.nspname, coalesce(quote_ident(r.rolname), 'PUBLIC') AS role_name
        FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) AS a LEFT JOIN pg_roles r ON r.oid = a.grantee
        WHERE (n.nspname = :schema::text OR n.nspname = ANY (current_schemas(false)))
            AND a.privilege_type = 'CREATE' AND r.rolsuper IS NOT TRUE
            AND NOT EXISTS (
                SELECT FROM (VALUES (n.nspowner), ((SELECT oid FROM pg_roles WHERE rolname = current_user)),
                              ((SELECT c.relowner FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
                                WHERE s.nspname = :schema::text AND c.relname = 'job'))) AS trusted (oid)
                WHERE CASE WHEN a.grantee = 0 THEN false ELSE pg_has_role(a.grantee, trusted.oid, 'USAGE') END)) AS creator
) AS exposure
