-- paused_until: when the pauses of a lane of these names end; NULL if it is not paused.
CREATE FUNCTION paused_until(of_queue text, of_kind text, of_provider text, of_tenant text, of_group text)
RETURNS timestamptz LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT max(until) FROM pause
    WHERE until > now() AND (scope, tenant_id, key) IN (
        VALUES ('queue', '', of_queue), ('kind', '', of_kind), ('provider', '', of_provider),
               ('tenant', '', of_tenant), ('group', '', of_group), ('group', of_tenant, of_group),
               ('rate', of_tenant, of_group))
        AND (scope = 'kind' OR NOT is_internal_kind(of_kind))
$$;
