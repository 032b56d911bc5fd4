-- dead_letter_full: the kinds and tenants that a queue refuses, because of their open dead letters (Q10).
-- Takes   queue, bound
-- Returns kind, tenant_id (NULL: of every tenant): while the queue has bound open entries, the kinds that have at least
--         their share of them; of such a kind one tenant alone where more than half of it are his, until the queue has
--         twice as many
-- Locks   nothing
-- Needs   dead_letter_open_idx, which the bound keeps small. fairlead_enqueue asks the same (dead_letter_refusals)
WITH open AS MATERIALIZED (
    SELECT d.kind, d.tenant_id, count(*) AS entries FROM dead_letter d
    WHERE d.queue = :queue AND d.status = 'pending_review'
    GROUP BY d.kind, d.tenant_id
),
kinds AS (
    SELECT open.kind, sum(entries) AS entries,
        (array_agg(open.tenant_id ORDER BY entries DESC))[1] AS loudest, max(entries) AS of_loudest
    FROM open GROUP BY open.kind
),
whole AS (SELECT sum(entries) AS entries, avg(entries) AS share FROM kinds)
SELECT kinds.kind, CASE WHEN 2 * of_loudest > kinds.entries AND whole.entries < 2 * :bound::bigint
    THEN loudest END AS tenant_id
FROM kinds, whole
WHERE whole.entries >= :bound::bigint AND kinds.entries >= whole.share
