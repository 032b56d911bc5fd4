-- row_security_exists: check whether the procedure that enables row security between tenants exists.
-- Takes   schema
-- Returns one row: exists
-- Locks   nothing
-- Needs   nothing
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = :schema::text AND p.proname = 'row_security_enable') AS exists
