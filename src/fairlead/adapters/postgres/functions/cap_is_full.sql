-- cap_is_full: whether a cap that applies to these names looks full, without a lock on it.
CREATE FUNCTION cap_is_full(of_tenant text, of_group text) RETURNS boolean LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (
        SELECT FROM concurrency_cap c CROSS JOIN LATERAL cap_running(c.tenant_id, c.group_key,
            cap_count_from(c.counted_from)) AS usage
        WHERE (c.tenant_id, c.group_key) IN (VALUES (of_tenant, ''), ('', of_group), (of_tenant, of_group))
            AND c.max_running <= usage.jobs)
$$;
