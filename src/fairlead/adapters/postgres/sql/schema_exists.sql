-- schema_exists: check whether a schema of this name exists, and whether its owner is trusted.
-- Takes   schema
-- Returns one row: exists, stranger (its owner, quoted for SQL, if that is neither this user, nor a role of
--         this user, nor the database's owner, nor another administrator; else NULL)
-- Locks   nothing
-- Needs   nothing. It comes before CREATE SCHEMA IF NOT EXISTS, which needs the right to create a schema even
--         if it exists. The owner of a schema may drop what others create in it, and replace it
SELECT n.oid IS NOT NULL AS exists, CASE WHEN NOT (
        o.rolsuper OR o.rolcreaterole OR o.rolname = 'pg_database_owner' OR pg_has_role(o.oid, d.datdba, 'USAGE')
        OR pg_has_role(current_user, o.oid, 'MEMBER')) THEN quote_ident(o.rolname) END AS stranger
FROM pg_catalog.pg_database d
    LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = :schema::text
    LEFT JOIN pg_catalog.pg_roles o ON o.oid = n.nspowner
WHERE d.datname = current_database()
