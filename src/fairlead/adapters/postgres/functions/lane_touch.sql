-- lane_touch: make lanes with due jobs ready, and park those with later ones.
-- Takes   lane_ids, due_ats
-- Returns nothing
-- Locks   these lanes, but never waits for a claim: a locked lane is left to the next claim, in lane_wake
-- Needs   lane_find_idx
CREATE FUNCTION lane_touch(lane_ids uuid[], due_ats timestamptz[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE missing uuid[]; behind uuid[];
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT a.lane_id, min(a.due_at) AS due_at FROM unnest(lane_ids, due_ats) AS a (lane_id, due_at)
        GROUP BY a.lane_id
    ),
    found AS MATERIALIZED (
        SELECT asked.*, lane.tid, lane.state, lane.park_reason, lane.wake_at, lane.mark_at
        FROM asked LEFT JOIN LATERAL (
            SELECT l.ctid AS tid, l.state, l.park_reason, l.wake_at, l.mark_at FROM lane l
            WHERE l.lane_id = asked.lane_id ORDER BY l.vtime DESC LIMIT 1
        ) AS lane ON true
    ),
    wanting AS MATERIALIZED (
        SELECT * FROM found
        WHERE tid IS NOT NULL AND (
            state = 'idle' OR mark_at >= due_at
            -- a claim that does not see this job yet may be about to set the mark behind it: ask for the lane itself
            OR due_at < now() - interval '1 second'
            -- a transaction that does not see this job yet is about to delete the empty lane
            OR state = 'parked' AND (park_reason = 'empty'
                OR park_reason = 'due' AND (wake_at > due_at OR due_at <= now())))
    ),
    held AS MATERIALIZED (
        SELECT l.*, l.ctid AS tid, wanting.due_at FROM wanting JOIN lane l ON l.ctid = wanting.tid
        FOR UPDATE OF l SKIP LOCKED
    ),
    class AS MATERIALIZED (
        SELECT queue, priority, kind, lane_start(queue, priority, kind) AS start FROM held
        WHERE state <> 'ready' AND due_at <= now() GROUP BY queue, priority, kind
    ),
    moved AS (
        UPDATE lane SET
            mark_at = least(lane.mark_at, now.due_at),
            mark_id = CASE WHEN lane.mark_at >= now.due_at THEN '00000000-0000-0000-0000-000000000000'
                           ELSE lane.mark_id END,
            state = now.state, park_reason = now.park_reason, wake_at = now.wake_at,
            level = CASE WHEN now.start IS NULL THEN lane.level ELSE lane.priority END,
            vtime = CASE WHEN now.start IS NULL THEN lane.vtime ELSE greatest(
                coalesce(now.last + lane.stride, lane.vtime), now.start) + lane.stride::bigint * now.before END,
            served_at = CASE WHEN now.start IS NULL THEN lane.served_at ELSE now() END
        FROM (
            SELECT held.tid, held.due_at, class.start,
                CASE WHEN stays THEN held.state WHEN class.start IS NOT NULL THEN 'ready' ELSE 'parked' END AS state,
                CASE WHEN stays THEN held.park_reason WHEN class.start IS NULL THEN 'due' END AS park_reason,
                CASE WHEN stays THEN held.wake_at WHEN class.start IS NULL THEN held.due_at END AS wake_at,
                lane_last(held.queue, held.priority, held.tenant_id) AS last,
                row_number() OVER (PARTITION BY held.queue, held.priority, held.tenant_id, class.start IS NULL
                                   ORDER BY held.vtime) - 1 AS before
            FROM (SELECT *, state = 'ready' OR park_reason IN ('pause', 'cap') IS TRUE AS stays FROM held) AS held
                LEFT JOIN class ON class.queue = held.queue AND class.priority = held.priority
                    AND class.kind = held.kind AND held.due_at <= now() AND NOT held.stays
        ) AS now
        WHERE lane.ctid = now.tid
    )
    SELECT array_agg(lane_id) FILTER (WHERE tid IS NULL),
        array_agg(lane_id) FILTER (WHERE lane_id IN (SELECT w.lane_id FROM wanting w)
                                   AND lane_id NOT IN (SELECT h.lane_id FROM held h))
    INTO missing, behind FROM found;
    IF missing IS NOT NULL THEN
        PERFORM lane_create(missing);
    END IF;
    IF behind IS NOT NULL THEN
        INSERT INTO lane_wake (lane_id, due_at)
        SELECT a.lane_id, a.due_at FROM unnest(lane_ids, due_ats) AS a (lane_id, due_at) WHERE a.lane_id = ANY(behind);
    END IF;
END $$;
