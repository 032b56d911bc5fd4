-- lane_pause: park lanes for a pause that is in force, whatever state they are in.
-- Takes   lane_ids, of_scope, of_tenant, of_key: the pause
-- Returns nothing
-- Locks   the row of the pause; these lanes in the order of their ids
-- Needs   nothing
CREATE FUNCTION lane_pause(lane_ids uuid[], of_scope text, of_tenant text, of_key text) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
DECLARE ends_at timestamptz; lane_tids tid[];
BEGIN
    SELECT p.until INTO ends_at FROM pause p
    WHERE p.scope = of_scope AND p.tenant_id = of_tenant AND p.key = of_key AND p.until > now() FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    lane_tids := lane_lock(lane_ids);
    UPDATE lane SET state = 'parked', park_reason = 'pause', wake_at = ends_at
    WHERE lane.ctid = ANY(lane_tids) AND (lane.park_reason IS DISTINCT FROM 'pause' OR lane.wake_at < ends_at);
END $$;
