-- lane_hold: park the lanes of a group until its turn at the provider's limits, or for longer where a pause
-- holds them.
-- Takes   lane_ids, of_tenant, of_group
-- Returns nothing
-- Locks   these lanes in the order of their ids
-- Needs   nothing. An earlier turn wakes them earlier, which lane_pause does not do
CREATE FUNCTION lane_hold(lane_ids uuid[], of_tenant text, of_group text) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
DECLARE mine tid[];
BEGIN
    PERFORM FROM pause p
    WHERE p.scope = 'rate' AND p.tenant_id = of_tenant AND p.key = of_group AND p.until > now() FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    mine := lane_locked(lane_ids);
    UPDATE lane SET state = 'parked', park_reason = 'pause', wake_at = held.until
    FROM (
        SELECT l.ctid AS tid, paused_until(
            l.queue COLLATE "default", l.kind COLLATE "default", l.provider COLLATE "default",
            l.tenant_id COLLATE "default", l.group_key COLLATE "default") AS until  -- as in the function's index
        FROM lane l WHERE l.ctid = ANY(mine)
    ) AS held
    WHERE lane.ctid = held.tid AND held.until IS NOT NULL
        AND (lane.park_reason IS DISTINCT FROM 'pause' OR lane.wake_at IS DISTINCT FROM held.until);
END $$;
