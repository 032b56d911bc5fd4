-- schema_exists: whether there is a schema of this name, and whether its owner is one to rely on.
-- Takes   schema
-- Returns one row: exists, stranger (its owner, as SQL writes it, where that is neither this user or a role of this
--         user, nor the database's owner or another administrator; else NULL)
-- Locks   nothing
-- Needs   nothing. CREATE SCHEMA IF NOT EXISTS asks for the right to create one even where it exists. The owner of a schema
--         may drop what others make in it, and put something else in its place
SELECT n.oid IS NOT NULL AS exists, CASE WHEN NOT (
        o.rolsuper OR o.rolcreaterole OR o.rolname = 'pg_database_owner' OR pg_has_role(o.oid, d.datdba, 'USAGE')
        OR pg_has_role(current_user, o.oid, 'MEMBER')) THEN quote_ident(o.rolname) END AS stranger
FROM pg_catalog.pg_database d
    LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = :schema::text
    LEFT JOIN pg_catalog.pg_roles o ON o.oid = n.nspowner
WHERE d.datname = current_database()
