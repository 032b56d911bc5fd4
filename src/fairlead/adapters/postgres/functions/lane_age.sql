-- lane_age: move ready lanes that have waited too long for their turn into a more urgent class.
-- Takes   longest_wait_s: a lane rises one class for each quarter of it
-- Returns the number of lanes that moved
-- Locks   these lanes; passes over locked ones
-- Needs   lane_ready_idx and the floors
CREATE FUNCTION lane_age(longest_wait_s float8) RETURNS integer LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
    WITH overdue_lane AS MATERIALIZED (
        SELECT l.ctid AS tid, l.queue, l.kind, l.tenant_id, l.stride::bigint, l.vtime,
            greatest(0, l.priority - floor(extract(epoch FROM now() - l.served_at) / (longest_wait_s / 4)))::smallint
                AS level
        FROM lane_floor f CROSS JOIN LATERAL (  -- one class at a time: a plain join may read all lanes
            SELECT lane.*, lane.ctid FROM lane
            WHERE lane.queue = f.queue AND lane.kind = f.kind AND lane.level = f.level AND lane.state = 'ready'
                AND lane.vtime >= f.vtime
                AND lane.served_at < now() - (lane.priority - lane.level + 1) * longest_wait_s / 4 * interval '1 second'
            FOR UPDATE SKIP LOCKED) AS l
        WHERE f.level > 0
    ),
    class AS MATERIALIZED (
        SELECT queue, level, kind, lane_join_vtime(queue, level, kind) AS start
            FROM overdue_lane GROUP BY queue, level, kind
    ),
    aged AS (
        UPDATE lane SET level = queued_lane.level, vtime = queued_lane.vtime
        FROM (  -- lanes of one tenant stand one behind the other
            SELECT overdue_lane.tid, overdue_lane.level,
                greatest(class.start, lane_last_vtime(overdue_lane.queue, overdue_lane.level,
                    overdue_lane.tenant_id) + overdue_lane.stride)
                + overdue_lane.stride * (row_number() OVER (PARTITION BY overdue_lane.queue, overdue_lane.level,
                    overdue_lane.tenant_id ORDER BY overdue_lane.vtime) - 1)
                AS vtime
            FROM overdue_lane JOIN class USING (queue, level, kind)
        ) AS queued_lane
        WHERE lane.ctid = queued_lane.tid RETURNING 1
    )
    SELECT count(*)::integer FROM aged
$$;
