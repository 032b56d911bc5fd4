-- lane_start: the virtual time at which a lane joins its class: the least of its kind, or of all kinds where
-- none of its kind is ready. No lane gets credit for a time without work, or because no worker takes another
-- kind. None joins below the floor, where no claim would see it. Spec: R17.
CREATE FUNCTION lane_start(of_queue text, of_level smallint, of_kind text) RETURNS bigint LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT greatest(
        CASE WHEN count(first.vtime) = 0 THEN (SELECT last_value FROM lane_clock)
             ELSE coalesce(min(first.vtime) FILTER (WHERE f.kind = of_kind), min(first.vtime)) END,
        max(f.vtime) FILTER (WHERE f.kind = of_kind))
    FROM lane_floor f LEFT JOIN LATERAL (
        SELECT vtime FROM lane
        WHERE queue = f.queue AND kind = f.kind AND level = f.level AND state = 'ready' AND vtime >= f.vtime
        ORDER BY vtime LIMIT 1
    ) AS first ON true
    WHERE f.queue = of_queue AND f.level = of_level
$$;
