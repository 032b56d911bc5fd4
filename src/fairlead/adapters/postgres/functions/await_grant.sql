-- await_grant: pause the work of a connection until it has a new grant, so that claims do not read it in vain.
-- Takes   of_tenant, of_provider, of_account: the key of the connection
-- Returns nothing
-- Locks   the pause of the connection; its lanes in the order of their ids. It waits some milliseconds for
--         claims
-- Needs   nothing. A pause without end that an operator set stays as it is. The sweep repairs a lane that
--         another transaction creates at this moment
CREATE FUNCTION await_grant(of_tenant text, of_provider text, of_account text) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO pause (scope, tenant_id, key, reason, paused_by)
    VALUES ('group', of_tenant, of_provider || '/' || of_account, 'needs_reauth', 'fairlead')
    ON CONFLICT (scope, tenant_id, key) DO UPDATE SET
        until = excluded.until, reason = excluded.reason, paused_by = excluded.paused_by, since = excluded.since
        WHERE pause.until < 'infinity';
    PERFORM FROM lane_name n JOIN lane l ON l.lane_id = n.lane_id
    WHERE n.tenant_id = of_tenant AND n.group_key = of_provider || '/' || of_account
    ORDER BY l.lane_id FOR UPDATE OF l;
    UPDATE lane SET state = 'parked', park_reason = 'pause', wake_at = 'infinity'
    FROM lane_name n
    WHERE n.tenant_id = of_tenant AND n.group_key = of_provider || '/' || of_account AND lane.lane_id = n.lane_id
        AND NOT is_internal_kind(lane.kind);
END $$;
