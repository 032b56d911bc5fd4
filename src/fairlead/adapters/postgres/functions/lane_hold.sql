-- lane_hold: park the lanes of a group until its reservation at the provider's limits, or longer under a longer
-- pause.
-- Takes   lane_ids, of_tenant, of_group
-- Returns nothing
-- Locks   these lanes in the order of their ids
-- Needs   nothing. Unlike lane_pause, it moves the wake time forward if the reservation is earlier now
CREATE FUNCTION lane_hold(lane_ids uuid[], of_tenant text, of_group text) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
DECLARE lane_tids tid[];
BEGIN
    PERFORM FROM pause p
    WHERE p.scope = 'rate' AND p.tenant_id = of_tenant AND p.key = of_group AND p.until > now() FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    lane_tids := lane_lock(lane_ids);
    UPDATE lane SET state = 'parked', park_reason = 'pause', wake_at = pause_end.until
    FROM (
        SELECT l.ctid AS tid, paused_until(
            l.queue COLLATE "default", l.kind COLLATE "default", l.provider COLLATE "default",
            l.tenant_id COLLATE "default", l.group_key COLLATE "default") AS until  -- the collation of the function's index
        FROM lane l WHERE l.ctid = ANY(lane_tids)
    ) AS pause_end
    WHERE lane.ctid = pause_end.tid AND pause_end.until IS NOT NULL
        AND (lane.park_reason IS DISTINCT FROM 'pause' OR lane.wake_at IS DISTINCT FROM pause_end.until);
END $$;
