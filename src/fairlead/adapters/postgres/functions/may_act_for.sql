-- may_act_for: whether the caller of fairlead_enqueue may act for this tenant. A door may act for the tenant in
-- fairlead.tenant_id, and so may any role that has set one. The engine, and a role without a tenant that was
-- granted the function, may act for all. `role` and session_user are the caller's own in a function that runs
-- as its owner. Spec: R35.
CREATE FUNCTION may_act_for(tenant text) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE
        WHEN pg_has_role(caller.name, 'fairlead_engine', 'USAGE') THEN true
        WHEN caller.tenant IS NOT NULL THEN caller.tenant = may_act_for.tenant
        ELSE NOT pg_has_role(caller.name, 'fairlead_door', 'MEMBER')
    END
    FROM (SELECT coalesce(nullif(current_setting('role'), 'none')::name, session_user) AS name,
                 nullif(current_setting('fairlead.tenant_id', true), '') AS tenant) AS caller;
END;
