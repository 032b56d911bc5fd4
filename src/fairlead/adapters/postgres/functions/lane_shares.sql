-- lane_shares: how many jobs each lane gives of what its line may give, the virtual time of the first, and from
-- one to the next.
CREATE FUNCTION lane_shares(held tid[], lasts bigint[], line_takes integer[],
    OUT takes integer[], OUT bases bigint[], OUT steps bigint[]) LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT array_agg(CASE WHEN rest THEN till - since
                          ELSE given / size + (place < given % size)::integer END::integer ORDER BY o),
        array_agg(start + step * CASE WHEN rest THEN since ELSE place END ORDER BY o),
        array_agg(step * CASE WHEN rest THEN 1 ELSE size END ORDER BY o)
    FROM (
        SELECT l.*, coalesce(lag(till) OVER (PARTITION BY line ORDER BY place), 0) AS since
        FROM (
            SELECT *, line_takes[line] AS given, least(line_takes[line], (past - start) / step) AS till
            FROM lane_lines(held, lasts)) AS l) AS line
$$;
