-- 0041_own_search_path: a function finds its tables whatever the search_path of the session is.
-- Phase   post (the version before it sets the path in its sessions; so does this one where no pooler stands between)
-- Needs   0037_narrow_rights. The functions that are bound to their tables (BEGIN ATOMIC) need none, nor do those that
--         name nothing of ours; a procedure that commits, as tenant_wall does, may not have one

DO $$
DECLARE
    -- as in 0013: the schema, and what else the session looks through
    path constant text := (SELECT string_agg(quote_ident(name), ', ') FROM unnest(current_schemas(false)) AS name);
    made regprocedure;
BEGIN
    FOR made IN
        SELECT p.oid FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = quote_ident(current_schema())::regnamespace AND p.prosqlbody IS NULL AND p.prokind = 'f'
            AND p.proname NOT IN ('audit_is_append_only', 'cap_since', 'failure_added', 'lane_cap_span', 'lane_risen')
            AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS setting WHERE setting LIKE 'search_path=%')
        ORDER BY 1
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %s, pg_temp', made, path);
    END LOOP;
END $$;

-- Who creates a role on PostgreSQL 16 and newer is a member of it, and may not take it until it is granted.
DO $$
DECLARE
    made text := pg_get_functiondef('tenant_role'::regproc);
    doubtful text := '''MEMBER''';
BEGIN
    IF strpos(made, doubtful) = 0 THEN
        RAISE 'tenant_role has no %', doubtful;
    END IF;
    EXECUTE replace(made, doubtful,
        'CASE WHEN current_setting(''server_version_num'')::integer < 160000 THEN ''MEMBER'' ELSE ''SET'' END');
END $$;
