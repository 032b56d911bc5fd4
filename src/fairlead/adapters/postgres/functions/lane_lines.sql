-- lane_lines: the lines of a claim: the held lanes of each tenant, one behind the other.
-- Takes   held: the lanes (ctid), lasts: the virtual time of the last lane of each one's tenant, held or not
-- Returns per lane its place: o (order in `held`), line, place and size (in the line), start, step, past (how
--         far it may give), last, rest (not the whole line is held)
-- Locks   nothing
-- Needs   a claim that holds several lanes of a tenant, or lanes of different weights; lane_starts, lane_shares
--         and lane_afters use it. A line gets no more than one lane would: its first lane gives jobs up to the
--         virtual time of the next, then goes to the end. If all lanes of a tenant are held, they share what
--         the line may give
CREATE FUNCTION lane_lines(held tid[], lasts bigint[]) RETURNS TABLE (
    o bigint, line bigint, place bigint, size bigint, start bigint, step bigint, past bigint, last bigint, rest boolean)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    WITH lined AS (
        SELECT h.o, h.last, lane.queue, lane.level, lane.vtime, lane.tenant_id, lane.stride::float8, max(h.last) OVER w AS last_of_all,
            row_number() OVER w AS place, count(*) OVER w AS size, min(lane.vtime) OVER w AS start,
            lead(lane.vtime) OVER (PARTITION BY lane.tenant_id ORDER BY lane.vtime, h.o) AS next,
            1 / lane.stride::float8 / count(*) OVER w AS part
        FROM unnest(held, lasts) WITH ORDINALITY AS h (tid, last, o) JOIN lane ON lane.ctid = h.tid
        WINDOW w AS (PARTITION BY lane.tenant_id ORDER BY lane.vtime, h.o
                     ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
    ),
    bounded AS (  -- nobody gets more than three for one of all the others, whatever the weights
        SELECT lined.*, CASE
            WHEN size = cardinality(held) OR 3 * (sum(part) OVER () - size * part) >= size * part THEN stride
            ELSE round(1 / (sum(part) OVER () - size * part) / 3) END::bigint AS step
        FROM lined
    )
    SELECT o, dense_rank() OVER (ORDER BY start, tenant_id), place - 1, size, start, step,
        greatest(coalesce(next, (
            SELECT l.vtime FROM lane l
            WHERE l.queue = bounded.queue AND l.level = bounded.level AND l.tenant_id = bounded.tenant_id
                AND l.state = 'ready' AND l.vtime > bounded.vtime
            ORDER BY l.vtime LIMIT 1), vtime + 3 * step), start + step * place),  -- at least one job of each
        last_of_all, last_of_all > max(vtime) OVER (PARTITION BY tenant_id)
    FROM bounded
$$;
