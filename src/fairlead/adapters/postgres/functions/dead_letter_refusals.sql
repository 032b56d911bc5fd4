-- dead_letter_refusals: the kinds of jobs that a queue refuses while it has too many open dead letters.
-- Takes   of_queue, bound: the number of open entries from which the queue refuses
-- Returns kind, tenant_id: each kind with at least the average number of open entries per kind. tenant_id names
--         the one tenant with more than half of that kind's entries; it is NULL (all tenants) if there is no
--         such tenant, or if the queue has twice the bound
-- Locks   nothing
-- Needs   dead_letter_open_idx, which the bound keeps small
CREATE FUNCTION dead_letter_refusals(of_queue text, bound bigint) RETURNS TABLE (kind text, tenant_id text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH open_entries AS MATERIALIZED (
        SELECT d.kind, d.tenant_id, count(*) AS entries FROM dead_letter d
        WHERE d.queue = of_queue AND d.status = 'pending_review'
        GROUP BY d.kind, d.tenant_id
    ),
    kind_entries AS (
        SELECT open_entries.kind, sum(entries) AS entries,
            (array_agg(open_entries.tenant_id ORDER BY entries DESC))[1] AS top_tenant, max(entries) AS top_entries
        FROM open_entries GROUP BY open_entries.kind
    ),
    total AS (SELECT sum(entries) AS entries, avg(entries) AS average FROM kind_entries)
    SELECT kind_entries.kind, CASE WHEN 2 * top_entries > kind_entries.entries AND total.entries < 2 * bound
        THEN top_tenant END
    FROM kind_entries, total
    WHERE total.entries >= bound AND kind_entries.entries >= total.average;
END;
