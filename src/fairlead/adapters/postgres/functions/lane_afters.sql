-- lane_afters: the virtual time of each lane after it gave so many jobs; see lane_lines.
CREATE FUNCTION lane_afters(held tid[], lasts bigint[], line_takes integer[], given integer[]) RETURNS bigint[]
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT array_agg(CASE
        WHEN NOT rest THEN start + step * jobs + 3 * step * place
        -- one that has not come to its end stays in front
        WHEN line_takes[line] < (past - start) / step THEN start + step * line_takes[line]
        ELSE last + 3 * step * (place + 1) END ORDER BY o)
    FROM (SELECT l.*, sum(given[o]) OVER (PARTITION BY line)::bigint AS jobs FROM lane_lines(held, lasts) AS l) AS line
$$;
