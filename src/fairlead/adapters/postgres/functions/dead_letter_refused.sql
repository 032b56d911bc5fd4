-- dead_letter_refused: what a queue refuses while it has too many open dead letters.
-- Takes   of_queue, bound: the number of open entries from which the queue refuses
-- Returns kind, tenant_id: each kind with at least its share of the entries. tenant_id is NULL for all tenants,
--         or the one tenant with more than half of the kind's entries, until the queue has twice the bound
-- Locks   nothing
-- Needs   dead_letter_open_idx
CREATE FUNCTION dead_letter_refused(of_queue text, bound bigint) RETURNS TABLE (kind text, tenant_id text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH open AS MATERIALIZED (
        SELECT d.kind, d.tenant_id, count(*) AS entries FROM dead_letter d
        WHERE d.queue = of_queue AND d.status = 'pending_review'
        GROUP BY d.kind, d.tenant_id
    ),
    kinds AS (
        SELECT open.kind, sum(entries) AS entries,
            (array_agg(open.tenant_id ORDER BY entries DESC))[1] AS loudest, max(entries) AS of_loudest
        FROM open GROUP BY open.kind
    ),
    whole AS (SELECT sum(entries) AS entries, avg(entries) AS share FROM kinds)
    SELECT kinds.kind, CASE WHEN 2 * of_loudest > kinds.entries AND whole.entries < 2 * bound THEN loudest END
    FROM kinds, whole
    WHERE whole.entries >= bound AND kinds.entries >= whole.share;
END;
