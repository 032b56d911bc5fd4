-- lane_uncap: make lanes ready that were parked for a full cap: the first `most` and the two that have waited
-- longest.
-- Takes   tenants, groups: those with free places, most
-- Returns nothing
-- Locks   these lanes; passes over locked ones
-- Needs   lane_cap_idx, lane_group_cap_idx, lane_cap_wait_idx, lane_group_cap_wait_idx
CREATE FUNCTION lane_uncap(tenants text[], groups text[], most integer) RETURNS void LANGUAGE sql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
    UPDATE lane SET
        state = 'ready', park_reason = NULL, wake_at = NULL, level = waiting.level,
        vtime = greatest(CASE WHEN lane.level = waiting.level THEN lane.vtime END,  -- other classes have their own
                         waiting.start, waiting.last + lane.stride) + lane.stride::bigint * waiting.before
    FROM (
        SELECT held.tid, held.level, lane_start(held.queue, held.level, held.kind) AS start,
            lane_last(held.queue, held.level, held.tenant_id) AS last,
            row_number() OVER (PARTITION BY held.queue, held.level, held.tenant_id ORDER BY held.served_at) - 1 AS before
        FROM (
            SELECT l.ctid AS tid, l.queue, least(l.level, lane_risen(l.priority, l.served_at)) AS level, l.kind,
                l.tenant_id, l.served_at
            FROM lane l
            -- not by one of these indexes: it would be read from end to end
            WHERE coalesce(l.park_reason, '') = 'cap' AND l.ctid = ANY(ARRAY(
                SELECT near.tid FROM (SELECT DISTINCT unnest(tenants)) AS freed (tenant_id) CROSS JOIN LATERAL (
                    SELECT FROM lane c WHERE c.park_reason = 'cap' AND c.tenant_id = freed.tenant_id
                        AND lane_cap_span(c.wake_at) >= (SELECT lane_cap_first())
                    LIMIT 1) AS anybody CROSS JOIN LATERAL (
                    (SELECT first.tid FROM lane_cap_spans() AS span (at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.served_at FROM lane c
                        WHERE c.park_reason = 'cap' AND c.tenant_id = freed.tenant_id
                            AND lane_cap_span(c.wake_at) = span.at
                        ORDER BY c.served_at LIMIT 2) AS first
                     ORDER BY first.served_at LIMIT 2)
                    UNION
                    (SELECT first.tid FROM lane_cap_spans() AS span (at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.level, c.vtime FROM lane c
                        WHERE c.park_reason = 'cap' AND c.tenant_id = freed.tenant_id
                            AND lane_cap_span(c.wake_at) = span.at
                        ORDER BY c.level, c.vtime LIMIT least(most, 500)) AS first
                     ORDER BY first.level, first.vtime LIMIT least(most, 500))) AS near
                UNION
                SELECT near.tid FROM (SELECT DISTINCT unnest(groups)) AS freed (group_key) CROSS JOIN LATERAL (
                    SELECT FROM lane c
                    WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = freed.group_key
                        AND lane_cap_span(c.wake_at) >= (SELECT lane_cap_first())
                    LIMIT 1) AS anybody CROSS JOIN LATERAL (
                    (SELECT first.tid FROM lane_cap_spans() AS span (at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.served_at FROM lane c
                        WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = freed.group_key
                            AND lane_cap_span(c.wake_at) = span.at
                        ORDER BY c.served_at LIMIT 2) AS first
                     ORDER BY first.served_at LIMIT 2)
                    UNION
                    (SELECT first.tid FROM lane_cap_spans() AS span (at) CROSS JOIN LATERAL (
                        SELECT c.ctid AS tid, c.level, c.vtime FROM lane c
                        WHERE c.park_reason = 'cap' AND c.group_key <> '' AND c.group_key = freed.group_key
                            AND lane_cap_span(c.wake_at) = span.at
                        ORDER BY c.level, c.vtime LIMIT least(most, 500)) AS first
                     ORDER BY first.level, first.vtime LIMIT least(most, 500))) AS near))
            ORDER BY least(l.level, lane_risen(l.priority, l.served_at)), l.served_at
            LIMIT least(most, 500) + 2 FOR UPDATE SKIP LOCKED
        ) AS held
    ) AS waiting
    WHERE lane.ctid = waiting.tid
$$;
