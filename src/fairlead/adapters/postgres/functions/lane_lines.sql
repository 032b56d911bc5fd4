-- lane_lines: arrange the lanes of a claim in lines: one line per tenant, its lanes in the order of virtual
-- time.
--
-- A line gets no more than a single lane would. Its first lane gives jobs up to the virtual time of the next,
-- and then goes to the end. If the claim holds all lanes of a tenant, they share what the line may give.
--
-- Takes   tids: the lanes of the claim (ctid); last_vtimes: for each, the virtual time of the last ready lane
--         of its tenant, whether or not the claim holds that one
-- Returns one row per lane: ord (its order in `tids`), line_no, place and size (in the line), start_vtime and
--         step (of the line), limit_vtime (how far it may give), last_vtime, is_partial (the claim does not
--         hold the whole line)
-- Locks   nothing
-- Needs   a claim that holds several lanes of a tenant, or lanes of different weights; lane_line_starts,
--         lane_line_shares and lane_next_vtimes use it
CREATE FUNCTION lane_lines(tids tid[], last_vtimes bigint[]) RETURNS TABLE (
    ord bigint, line_no bigint, place bigint, size bigint, start_vtime bigint, step bigint, limit_vtime bigint,
    last_vtime bigint, is_partial boolean)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    WITH ranked_lane AS (
        SELECT input.ord, input.last_vtime, lane.queue, lane.level, lane.vtime, lane.tenant_id, lane.stride::float8,
            max(input.last_vtime) OVER tenant_line AS line_last_vtime,
            row_number() OVER tenant_line AS place, count(*) OVER tenant_line AS size,
            min(lane.vtime) OVER tenant_line AS start_vtime,
            lead(lane.vtime) OVER (PARTITION BY lane.tenant_id ORDER BY lane.vtime, input.ord) AS next_vtime,
            1 / lane.stride::float8 / count(*) OVER tenant_line AS line_weight
        FROM unnest(tids, last_vtimes) WITH ORDINALITY AS input (tid, last_vtime, ord) JOIN lane ON lane.ctid = input.tid
        WINDOW tenant_line AS (PARTITION BY lane.tenant_id ORDER BY lane.vtime, input.ord
                     ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
    ),
    bounded AS (  -- no tenant gets more than three jobs for one of all others together, whatever the weights
        SELECT ranked_lane.*, CASE
            WHEN size = cardinality(tids) OR 3 * (sum(line_weight) OVER () - size * line_weight) >= size * line_weight THEN stride
            ELSE round(1 / (sum(line_weight) OVER () - size * line_weight) / 3) END::bigint AS step
        FROM ranked_lane
    )
    SELECT ord, dense_rank() OVER (ORDER BY start_vtime, tenant_id), place - 1, size, start_vtime, step,
        greatest(coalesce(next_vtime, (
            SELECT l.vtime FROM lane l
            WHERE l.queue = bounded.queue AND l.level = bounded.level AND l.tenant_id = bounded.tenant_id
                AND l.state = 'ready' AND l.vtime > bounded.vtime
            ORDER BY l.vtime LIMIT 1), vtime + 3 * step), start_vtime + step * place),  -- at least one job per lane
        line_last_vtime, line_last_vtime > max(vtime) OVER (PARTITION BY tenant_id)
    FROM bounded
$$;
