-- lane_age: move ready lanes that have waited too long for their turn into a more urgent class.
-- Takes   longest_wait_s: a lane rises one class for each quarter of it
-- Returns the number of lanes
-- Locks   these lanes; passes over locked ones
-- Needs   lane_ready_idx and the floors
CREATE FUNCTION lane_age(longest_wait_s float8) RETURNS integer LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
    WITH old AS MATERIALIZED (
        SELECT l.ctid AS tid, l.queue, l.kind, l.tenant_id, l.stride::bigint, l.vtime,
            greatest(0, l.priority - floor(extract(epoch FROM now() - l.served_at) / (longest_wait_s / 4)))::smallint
                AS level
        FROM lane_floor f CROSS JOIN LATERAL (  -- class by class: as a join it may be of all classes, from end to end
            SELECT lane.*, lane.ctid FROM lane
            WHERE lane.queue = f.queue AND lane.kind = f.kind AND lane.level = f.level AND lane.state = 'ready'
                AND lane.vtime >= f.vtime
                AND lane.served_at < now() - (lane.priority - lane.level + 1) * longest_wait_s / 4 * interval '1 second'
            FOR UPDATE SKIP LOCKED) AS l
        WHERE f.level > 0
    ),
    class AS MATERIALIZED (
        SELECT queue, level, kind, lane_start(queue, level, kind) AS start FROM old GROUP BY queue, level, kind
    ),
    aged AS (
        UPDATE lane SET level = lined.level, vtime = lined.vtime
        FROM (  -- those of a tenant one behind the other
            SELECT old.tid, old.level, greatest(class.start, lane_last(old.queue, old.level, old.tenant_id) + old.stride)
                + old.stride * (row_number() OVER (PARTITION BY old.queue, old.level, old.tenant_id ORDER BY old.vtime) - 1)
                AS vtime
            FROM old JOIN class USING (queue, level, kind)
        ) AS lined
        WHERE lane.ctid = lined.tid RETURNING 1
    )
    SELECT count(*)::integer FROM aged
$$;
