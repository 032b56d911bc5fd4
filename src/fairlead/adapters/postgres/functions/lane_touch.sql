-- lane_touch: make lanes ready that have new due jobs, and park those with new jobs that are due later.
-- Takes   lane_ids, due_ats
-- Returns nothing
-- Locks   these lanes. It never waits for a claim: a locked lane is noted in lane_wake for the next claim
-- Needs   lane_find_idx
CREATE FUNCTION lane_touch(lane_ids uuid[], due_ats timestamptz[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE missing uuid[]; locked_ids uuid[];
BEGIN
    WITH input AS MATERIALIZED (
        SELECT a.lane_id, min(a.due_at) AS due_at FROM unnest(lane_ids, due_ats) AS a (lane_id, due_at)
        GROUP BY a.lane_id
    ),
    known_lane AS MATERIALIZED (
        SELECT input.*, lane.tid, lane.state, lane.park_reason, lane.wake_at, lane.mark_at
        FROM input LEFT JOIN LATERAL (
            SELECT l.ctid AS tid, l.state, l.park_reason, l.wake_at, l.mark_at FROM lane l
            WHERE l.lane_id = input.lane_id ORDER BY l.vtime DESC LIMIT 1
        ) AS lane ON true
    ),
    outdated_lane AS MATERIALIZED (
        SELECT * FROM known_lane
        WHERE tid IS NOT NULL AND (
            state = 'idle' OR mark_at >= due_at
            -- a claim that does not see this job yet may be about to set the mark behind it, so lock the lane
            OR due_at < now() - interval '1 second'
            -- a transaction that does not see this job yet may be about to make the empty lane idle
            OR state = 'parked' AND (park_reason = 'empty'
                OR park_reason = 'due' AND (wake_at > due_at OR due_at <= now())))
    ),
    locked_lane AS MATERIALIZED (
        SELECT l.*, l.ctid AS tid, outdated_lane.due_at FROM outdated_lane JOIN lane l ON l.ctid = outdated_lane.tid
        FOR UPDATE OF l SKIP LOCKED
    ),
    class AS MATERIALIZED (
        SELECT queue, priority, kind, lane_join_vtime(queue, priority, kind) AS start FROM locked_lane
        WHERE state <> 'ready' AND due_at <= now() GROUP BY queue, priority, kind
    ),
    updated_lane AS (
        UPDATE lane SET
            mark_at = least(lane.mark_at, change.due_at),
            mark_id = CASE WHEN lane.mark_at >= change.due_at THEN '00000000-0000-0000-0000-000000000000'
                           ELSE lane.mark_id END,
            state = change.state, park_reason = change.park_reason, wake_at = change.wake_at,
            level = CASE WHEN change.start IS NULL THEN lane.level ELSE lane.priority END,
            vtime = CASE WHEN change.start IS NULL THEN lane.vtime ELSE greatest(
                coalesce(change.last_vtime + lane.stride, lane.vtime),
                    change.start) + lane.stride::bigint * change.ahead END,
            served_at = CASE WHEN change.start IS NULL THEN lane.served_at ELSE now() END
        FROM (
            SELECT locked_lane.tid, locked_lane.due_at, class.start,
                CASE WHEN is_kept THEN locked_lane.state WHEN class.start IS NOT NULL THEN 'ready'
                    ELSE 'parked' END AS state,
                CASE WHEN is_kept THEN locked_lane.park_reason WHEN class.start IS NULL THEN 'due' END AS park_reason,
                CASE WHEN is_kept THEN locked_lane.wake_at WHEN class.start IS NULL THEN locked_lane.due_at END AS wake_at,
                lane_last_vtime(locked_lane.queue, locked_lane.priority, locked_lane.tenant_id) AS last_vtime,
                row_number() OVER (PARTITION BY locked_lane.queue, locked_lane.priority, locked_lane.tenant_id,
                    class.start IS NULL
                                   ORDER BY locked_lane.vtime) - 1 AS ahead
            FROM (SELECT *, state = 'ready' OR park_reason IN ('pause', 'cap') IS TRUE AS is_kept
                FROM locked_lane) AS locked_lane
                LEFT JOIN class ON class.queue = locked_lane.queue AND class.priority = locked_lane.priority
                    AND class.kind = locked_lane.kind AND locked_lane.due_at <= now() AND NOT locked_lane.is_kept
        ) AS change
        WHERE lane.ctid = change.tid
    )
    SELECT array_agg(lane_id) FILTER (WHERE tid IS NULL),
        array_agg(lane_id) FILTER (WHERE lane_id IN (SELECT w.lane_id FROM outdated_lane w)
                                   AND lane_id NOT IN (SELECT h.lane_id FROM locked_lane h))
    INTO missing, locked_ids FROM known_lane;
    IF missing IS NOT NULL THEN
        PERFORM lane_create(missing);
    END IF;
    IF locked_ids IS NOT NULL THEN
        INSERT INTO lane_wake (lane_id, due_at)
        SELECT a.lane_id, a.due_at FROM unnest(lane_ids, due_ats) AS a (lane_id, due_at) WHERE a.lane_id = ANY(locked_ids);
    END IF;
END $$;
