-- lane_touch_for_tenant: lane_touch for statements under row security: the order of lanes is one of all
-- tenants, of which it returns nothing.
CREATE FUNCTION lane_touch_for_tenant(lane_ids uuid[], due_ats timestamptz[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
    SELECT lane_touch(lane_ids, due_ats)
$$;

REVOKE ALL ON FUNCTION lane_touch_for_tenant FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lane_touch_for_tenant TO fairlead_engine;
