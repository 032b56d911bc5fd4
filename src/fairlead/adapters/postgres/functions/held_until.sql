-- held_until: until when a lane of these names is paused, for a statement that is about to park it; NULL if it
-- is not paused.
-- Locks   the pauses until the end of the transaction, so a statement that ends one finds every lane parked for
--         it
CREATE FUNCTION held_until(of_queue text, of_kind text, of_provider text, of_tenant text, of_group text)
RETURNS timestamptz LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
    SELECT max(until) FROM (
        SELECT until FROM pause
        WHERE until > now() AND (scope, tenant_id, key) IN (
            VALUES ('queue', '', of_queue), ('kind', '', of_kind), ('provider', '', of_provider),
                   ('tenant', '', of_tenant), ('group', '', of_group), ('group', of_tenant, of_group),
                   ('rate', of_tenant, of_group))
            AND (scope = 'kind' OR NOT is_internal_kind(of_kind))
        FOR SHARE) AS in_force
$$;
