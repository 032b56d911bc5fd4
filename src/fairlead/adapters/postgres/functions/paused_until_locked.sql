-- paused_until_locked: when the pauses of a lane of these names end, as paused_until; NULL if it is not paused.
-- For statements that are about to park the lane.
-- Locks   the pauses until the end of the transaction, so that a statement that ends one finds every lane
--         parked for it
CREATE FUNCTION paused_until_locked(of_queue text, of_kind text, of_provider text, of_tenant text, of_group text)
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
