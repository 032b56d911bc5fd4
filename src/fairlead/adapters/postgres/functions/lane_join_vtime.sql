-- lane_join_vtime: the virtual time at which a lane joins its class: the least of the ready lanes of its kind,
-- or of all kinds if none of its kind is ready. So a lane gets no credit for a time without work, or because no
-- worker takes another kind. It is never below the floor, where no claim would read the lane. Spec: R17.
CREATE FUNCTION lane_join_vtime(of_queue text, of_level smallint, of_kind text) RETURNS bigint LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT greatest(
        CASE WHEN count(least_ready.vtime) = 0 THEN (SELECT last_value FROM lane_clock)
             ELSE coalesce(min(least_ready.vtime) FILTER (WHERE f.kind = of_kind), min(least_ready.vtime)) END,
        max(f.vtime) FILTER (WHERE f.kind = of_kind))
    FROM lane_floor f LEFT JOIN LATERAL (
        SELECT vtime FROM lane
        WHERE queue = f.queue AND kind = f.kind AND level = f.level AND state = 'ready' AND vtime >= f.vtime
        ORDER BY vtime LIMIT 1
    ) AS least_ready ON true
    WHERE f.queue = of_queue AND f.level = of_level
$$;
