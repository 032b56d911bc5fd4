-- lane_line_shares: divide the share of each line among its lanes.
-- Takes   tids, last_vtimes: as lane_lines; line_shares: the jobs that each line may give
-- Returns for each lane in the order of `tids`: shares (its jobs), first_vtimes (of its first job), steps (from
--         one job to the next)
-- Locks   nothing
-- Needs   nothing
CREATE FUNCTION lane_line_shares(tids tid[], last_vtimes bigint[], line_shares integer[],
    OUT shares integer[], OUT first_vtimes bigint[], OUT steps bigint[]) LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT array_agg(CASE WHEN is_partial THEN end_job - start_job
                          ELSE line_share / size + (place < line_share % size)::integer END::integer ORDER BY ord),
        array_agg(start_vtime + step * CASE WHEN is_partial THEN start_job ELSE place END ORDER BY ord),
        array_agg(step * CASE WHEN is_partial THEN 1 ELSE size END ORDER BY ord)
    FROM (
        SELECT l.*, coalesce(lag(end_job) OVER (PARTITION BY line_no ORDER BY place), 0) AS start_job
        FROM (
            SELECT *, line_shares[line_no] AS line_share,
                least(line_shares[line_no], (limit_vtime - start_vtime) / step) AS end_job
            FROM lane_lines(tids, last_vtimes)) AS l) AS lane_line
$$;
