-- lane_uncap: make lanes ready that were parked for a full cap: the first `most`, and the two that waited
-- longest.
-- Takes   tenants, groups: those with free places; most
-- Returns nothing
-- Locks   these lanes; passes over locked ones
-- Needs   lane_cap_idx, lane_group_cap_idx, lane_cap_wait_idx, lane_group_cap_wait_idx
CREATE FUNCTION lane_uncap(tenants text[], groups text[], most integer) RETURNS void LANGUAGE sql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
    UPDATE lane SET
        state = 'ready', park_reason = NULL, wake_at = NULL, level = waiting.level,
        vtime = greatest(CASE WHEN lane.level = waiting.level THEN lane.vtime END,  -- each class has its own virtual time
                         waiting.start, waiting.last_vtime + lane.stride) + lane.stride::bigint * waiting.ahead
    FROM (
        SELECT locked_lane.tid, locked_lane.level, lane_join_vtime(locked_lane.queue, locked_lane.level,
            locked_lane.kind) AS start,
            lane_last_vtime(locked_lane.queue, locked_lane.level, locked_lane.tenant_id) AS last_vtime,
            row_number() OVER (PARTITION BY locked_lane.queue, locked_lane.level, locked_lane.tenant_id
                ORDER BY locked_lane.served_at) - 1 AS ahead
        FROM (
            SELECT l.ctid AS tid, l.queue, least(l.level, lane_aged_level(l.priority, l.served_at)) AS level, l.kind,
                l.tenant_id, l.served_at
            FROM lane l
            -- an expression, so that none of these indexes is read as a whole
            WHERE coalesce(l.park_reason, '') = 'cap' AND l.ctid = ANY(ARRAY(
                SELECT candidate.tid FROM (SELECT DISTINCT unnest(tenants)) AS name (tenant_id) CROSS JOIN LATERAL (
                    SELECT FROM lane c WHERE c.park_reason = 'cap' AND c.tenant_id = name.tenant_id
                        AND lane_cap_span(c.wake_at) >= (SELECT lane_cap_span_first())
                    LIMIT 1) AS any_waiter CROSS JOIN LATERAL (
                    (SELECT waiter.tid FROM lane_cap_spans() AS span (start_at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.served_at FROM lane c
                        WHERE c.park_reason = 'cap' AND c.tenant_id = name.tenant_id
                            AND lane_cap_span(c.wake_at) = span.start_at
                        ORDER BY c.served_at LIMIT 2) AS waiter
                     ORDER BY waiter.served_at LIMIT 2)
                    UNION
                    (SELECT waiter.tid FROM lane_cap_spans() AS span (start_at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.level, c.vtime FROM lane c
                        WHERE c.park_reason = 'cap' AND c.tenant_id = name.tenant_id
                            AND lane_cap_span(c.wake_at) = span.start_at
                        ORDER BY c.level, c.vtime LIMIT least(most, 500)) AS waiter
                     ORDER BY waiter.level, waiter.vtime LIMIT least(most, 500))) AS candidate
                UNION
                SELECT candidate.tid FROM (SELECT DISTINCT unnest(groups)) AS name (group_key) CROSS JOIN LATERAL (
                    SELECT FROM lane c
                    WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = name.group_key
                        AND lane_cap_span(c.wake_at) >= (SELECT lane_cap_span_first())
                    LIMIT 1) AS any_waiter CROSS JOIN LATERAL (
                    (SELECT waiter.tid FROM lane_cap_spans() AS span (start_at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.served_at FROM lane c
                        WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = name.group_key
                            AND lane_cap_span(c.wake_at) = span.start_at
                        ORDER BY c.served_at LIMIT 2) AS waiter
                     ORDER BY waiter.served_at LIMIT 2)
                    UNION
                    (SELECT waiter.tid FROM lane_cap_spans() AS span (start_at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.level, c.vtime FROM lane c
                        WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = name.group_key
                            AND lane_cap_span(c.wake_at) = span.start_at
                        ORDER BY c.level, c.vtime LIMIT least(most, 500)) AS waiter
                     ORDER BY waiter.level, waiter.vtime LIMIT least(most, 500))) AS candidate))
            ORDER BY least(l.level, lane_aged_level(l.priority, l.served_at)), l.served_at
            LIMIT least(most, 500) + 2 FOR UPDATE SKIP LOCKED
        ) AS locked_lane
    ) AS waiting
    WHERE lane.ctid = waiting.tid
$$;
