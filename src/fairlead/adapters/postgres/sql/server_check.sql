-- server_check: what a server must be asked before anything is trusted to it.
-- Takes   nothing
-- Gives   one row: version as a number, synchronous_commit, isolation by default, encoding, engine
--         (whether this user has the rights of fairlead_engine; NULL where there is no such role),
--         schema (where our tables are; NULL where search_path shows none), creators (roles beside the schema's owner,
--         that of the tables and this user that may CREATE there: what they make could run with others' rights)
-- Locks   nothing
-- Needs   nothing
SELECT
    current_setting('server_version_num')::integer AS version,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('default_transaction_isolation') AS isolation,
    current_setting('server_encoding') AS encoding,
    (SELECT pg_has_role(current_user, oid, 'USAGE') FROM pg_roles WHERE rolname = 'fairlead_engine') AS engine,
    (SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
     WHERE pg_class.oid = to_regclass('job')) AS schema,
    (SELECT coalesce(string_agg(coalesce(r.rolname, 'PUBLIC'), ', ' ORDER BY r.rolname), '')
     FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) AS a LEFT JOIN pg_roles r ON r.oid = a.grantee
     WHERE n.nspname = current_schema() AND a.privilege_type = 'CREATE' AND r.rolsuper IS NOT TRUE
         AND NOT EXISTS (
             SELECT FROM (VALUES (n.nspowner), ((SELECT oid FROM pg_roles WHERE rolname = current_user)),
                          ((SELECT relowner FROM pg_class WHERE oid = to_regclass('job')))) AS trusted (oid)
             WHERE CASE WHEN a.grantee = 0 THEN false ELSE pg_has_role(a.grantee, trusted.oid, 'USAGE') END)) AS creators
