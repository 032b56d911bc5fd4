-- lane_next_vtimes: the virtual time of each lane of a claim after it gave its jobs; see lane_lines.
-- Takes   tids, last_vtimes: as lane_lines; line_shares: the jobs each line may give; job_counts: those each
--         lane gave
-- Returns the virtual times in the order of `tids`
-- Locks   nothing
-- Needs   nothing
CREATE FUNCTION lane_next_vtimes(tids tid[], last_vtimes bigint[], line_shares integer[],
    job_counts integer[]) RETURNS bigint[]
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT array_agg(CASE
        WHEN NOT is_partial THEN start_vtime + step * jobs + 3 * step * place
        -- a line stays in front until its first lane has reached the next one
        WHEN line_shares[line_no] < (limit_vtime - start_vtime) / step THEN start_vtime + step * line_shares[line_no]
        ELSE last_vtime + 3 * step * (place + 1) END ORDER BY ord)
    FROM (SELECT l.*, sum(job_counts[ord]) OVER (PARTITION BY line_no)::bigint AS jobs
        FROM lane_lines(tids, last_vtimes) AS l) AS lane_line
$$;
