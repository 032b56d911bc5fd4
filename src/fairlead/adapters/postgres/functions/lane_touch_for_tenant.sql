-- lane_touch_for_tenant: call lane_touch for statements under row security. All tenants share the order of the
-- lanes, so it runs as the owner, and returns nothing of it.
CREATE FUNCTION lane_touch_for_tenant(lane_ids uuid[], due_ats timestamptz[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
    SELECT lane_touch(lane_ids, due_ats)
$$;

REVOKE ALL ON FUNCTION lane_touch_for_tenant FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lane_touch_for_tenant TO fairlead_engine;
