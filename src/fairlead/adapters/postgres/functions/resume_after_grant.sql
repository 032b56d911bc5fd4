-- resume_after_grant: end the pause of await_grant, when the connection has a new grant or is removed.
-- Takes   of_tenant, of_provider, of_account: the key of the connection
-- Returns nothing
-- Locks   the pause of the connection; its lanes in the order of their ids
-- Needs   nothing. Lanes under another pause stay parked
CREATE FUNCTION resume_after_grant(of_tenant text, of_provider text, of_account text) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM pause
    WHERE scope = 'group' AND tenant_id = of_tenant AND key = of_provider || '/' || of_account
        AND reason = 'needs_reauth' AND paused_by = 'fairlead';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM lane_name n JOIN lane l ON l.lane_id = n.lane_id
    WHERE n.tenant_id = of_tenant AND n.group_key = of_provider || '/' || of_account
    ORDER BY l.lane_id FOR UPDATE OF l;
    UPDATE lane SET wake_at = clock_timestamp()
    FROM lane_name n
    WHERE n.tenant_id = of_tenant AND n.group_key = of_provider || '/' || of_account AND lane.lane_id = n.lane_id
        AND lane.park_reason = 'pause';
END $$;
