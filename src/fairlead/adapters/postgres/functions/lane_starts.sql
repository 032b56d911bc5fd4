-- lane_starts: where each line starts, the charge of a job, and how far all may go, because what stands behind
-- a line is not known.
CREATE FUNCTION lane_starts(held tid[], lasts bigint[], OUT starts bigint[], OUT steps bigint[], OUT bound bigint)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT array_agg(start ORDER BY line) FILTER (WHERE place = 0),
        array_agg(step ORDER BY line) FILTER (WHERE place = 0),
        min(past) FILTER (WHERE rest AND place = size - 1)
    FROM lane_lines(held, lasts)
$$;
