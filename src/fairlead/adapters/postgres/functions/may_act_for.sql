-- may_act_for: whether the caller of fairlead_enqueue may act for this tenant.
--
-- A role that has set fairlead.tenant_id may act for that tenant only. A member of fairlead_reader that has not
-- set it may act for none. The engine may act for all tenants, and so may any other role that was granted the
-- function. In a function that runs as its owner, `role` and session_user are still those of the caller.
-- Spec: R35.
CREATE FUNCTION may_act_for(tenant text) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE
        WHEN pg_has_role(caller.name, 'fairlead_engine', 'USAGE') THEN true
        WHEN caller.tenant IS NOT NULL THEN caller.tenant = may_act_for.tenant
        ELSE NOT pg_has_role(caller.name, 'fairlead_reader', 'MEMBER')
    END
    FROM (SELECT coalesce(nullif(current_setting('role'), 'none')::name, session_user) AS name,
                 nullif(current_setting('fairlead.tenant_id', true), '') AS tenant) AS caller;
END;
