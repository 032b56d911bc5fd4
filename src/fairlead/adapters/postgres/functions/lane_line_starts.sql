-- lane_line_starts: the starts and steps of the lines of a claim.
-- Takes   tids, last_vtimes: as lane_lines
-- Returns starts and steps, one of each line; bound: the virtual time up to which lines may give, because the
--         lanes behind a partial line are not known
-- Locks   nothing
-- Needs   nothing
CREATE FUNCTION lane_line_starts(tids tid[], last_vtimes bigint[], OUT starts bigint[], OUT steps bigint[],
    OUT bound bigint)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT array_agg(start_vtime ORDER BY line_no) FILTER (WHERE place = 0),
        array_agg(step ORDER BY line_no) FILTER (WHERE place = 0),
        min(limit_vtime) FILTER (WHERE is_partial AND place = size - 1)
    FROM lane_lines(tids, last_vtimes)
$$;
