-- is_capped: whether a cap applies to a lane of these names. fairlead's own work is never capped.
CREATE FUNCTION is_capped(of_kind text, of_tenant text, of_group text) RETURNS boolean LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT NOT is_internal_kind(of_kind) AND EXISTS (SELECT FROM concurrency_cap WHERE (tenant_id, group_key) IN (
        VALUES (of_tenant, ''), ('', of_group), (of_tenant, of_group)))
$$;
