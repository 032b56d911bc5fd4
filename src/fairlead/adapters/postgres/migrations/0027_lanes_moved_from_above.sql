-- 0027_lanes_moved_from_above: holds, pauses and settings read what lanes are, not what they were (Q7, Q12).
-- Phase   pre (the version before it has statements of its own for this)
-- Needs   0008_rate_holds, 0025_lanes_found_from_above

-- The rows that these lanes are, locked in the order of their ids: it waits for claims, which hold lanes for some
-- milliseconds. Whoever changes them does it in a later statement, which sees where a row that was waited for has moved.
CREATE FUNCTION lane_locked(lane_ids uuid[]) RETURNS tid[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id ORDER BY 1) AS named CROSS JOIN LATERAL (
        SELECT FROM lane l WHERE l.lane_id = named.lane_id ORDER BY l.vtime DESC LIMIT 1 FOR UPDATE) AS mine;
    RETURN ARRAY(
        SELECT newest.tid FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id) AS named CROSS JOIN LATERAL (
            SELECT l.ctid AS tid FROM lane l WHERE l.lane_id = named.lane_id ORDER BY l.vtime DESC LIMIT 1) AS newest);
END $$;

-- Whether a lane is of fairlead's own work, which only a pause of its kind holds.
CREATE FUNCTION lane_is_own(of_lane uuid) RETURNS boolean LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN (SELECT is_own(l.kind) FROM lane l WHERE l.lane_id = of_lane ORDER BY l.vtime DESC LIMIT 1) IS TRUE;
END $$;

-- Lanes of a group wait for its turn at the provider's limits, or for what holds them longer. An earlier turn makes them
-- wake earlier, which lane_pause does not.
CREATE FUNCTION lane_hold(lane_ids uuid[], of_tenant text, of_group text) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off AS $$
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

-- Lanes of a pause that is in force are parked, whatever state they are in.
CREATE FUNCTION lane_pause(lane_ids uuid[], of_scope text, of_tenant text, of_key text) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE ends timestamptz; mine tid[];
BEGIN
    SELECT p.until INTO ends FROM pause p
    WHERE p.scope = of_scope AND p.tenant_id = of_tenant AND p.key = of_key AND p.until > now() FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    mine := lane_locked(lane_ids);
    UPDATE lane SET state = 'parked', park_reason = 'pause', wake_at = ends
    WHERE lane.ctid = ANY(mine) AND (lane.park_reason IS DISTINCT FROM 'pause' OR lane.wake_at < ends);
END $$;

-- Lanes that were parked for a pause are looked at again by the next claim, of which workers are told.
CREATE FUNCTION lane_unpause(lane_ids uuid[], notify boolean) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE mine tid[] := lane_locked(lane_ids); lanes integer;
BEGIN
    WITH woken AS (
        UPDATE lane SET wake_at = clock_timestamp()
        WHERE lane.ctid = ANY(mine) AND lane.park_reason = 'pause' AND lane.wake_at > now() RETURNING lane.queue
    ),
    told AS MATERIALIZED (
        SELECT count(pg_notify('fairlead_job', queue)) FROM (SELECT DISTINCT queue FROM woken) AS q WHERE notify
    )
    SELECT (SELECT count(*) FROM woken) INTO lanes FROM told;
    RETURN lanes;
END $$;

-- Copies of what is set are brought in step. Lanes that are in step are not locked: a tier may be of all of them.
CREATE FUNCTION lane_apply(lane_ids uuid[]) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE mine tid[];
BEGIN
    mine := lane_locked(ARRAY(
        SELECT named.lane_id FROM (SELECT DISTINCT unnest(lane_ids) AS lane_id) AS named CROSS JOIN LATERAL (
            SELECT l.* FROM lane l WHERE l.lane_id = named.lane_id ORDER BY l.vtime DESC LIMIT 1) AS newest
        WHERE newest.stride <> stride_of(newest.tenant_id COLLATE "default")  -- as in the functions' indexes
            OR newest.capped <> is_capped(
                newest.kind, newest.tenant_id COLLATE "default", newest.group_key COLLATE "default")));
    UPDATE lane SET
        stride = stride_of(tenant_id COLLATE "default"),
        capped = is_capped(kind, tenant_id COLLATE "default", group_key COLLATE "default")
    WHERE lane.ctid = ANY(mine);
END $$;
