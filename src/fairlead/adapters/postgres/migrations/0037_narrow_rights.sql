-- 0037_narrow_rights: a door reads no sealed secret, and nobody says when an audit record was written (R54, T13).
-- Phase   pre (the version before it does neither; it calls lane_sweep_page, not lane_sweep)
-- Needs   0014_tenant_policies, 0020_sweep_in_pages

DO $$
DECLARE
    made text := pg_get_functiondef('tenant_wall'::regproc);
    broad text := '[''audit'', ''SELECT, INSERT'']';
    record text := 'INSERT (audit_id, tenant_id, actor, act, provider, connection_id, details)';
BEGIN
    REVOKE SELECT ON credential FROM fairlead_door;
    EXECUTE (
        SELECT format('GRANT SELECT (%s) ON credential TO fairlead_door', string_agg(quote_ident(attname), ', '))
        FROM pg_attribute
        WHERE attrelid = 'credential'::regclass AND attnum > 0 AND NOT attisdropped
            AND attname NOT IN ('sealed', 'key_id'));

    REVOKE INSERT ON audit FROM fairlead_engine;
    EXECUTE format('GRANT %s ON audit TO fairlead_engine', record);
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'fairlead_tenant') THEN
        REVOKE INSERT ON audit FROM fairlead_tenant;
        EXECUTE format('GRANT %s ON audit TO fairlead_tenant', record);
    END IF;
    IF strpos(made, broad) = 0 THEN
        RAISE 'tenant_wall has no %', broad;
    END IF;
    EXECUTE replace(made, broad, format('[''audit'', ''SELECT, %s'']', record));
END $$;

DROP FUNCTION lane_sweep();
