-- 0021_full_dead_letters: one tenant's dead letters stop its own work, not everybody's (Q10, S36).
-- Phase   pre (the version before it asks by a statement of its own, which refuses the kind to all)
-- Needs   0005_enqueue

-- What a queue refuses: while it has `bound` open entries, each kind that has at least its share of them. Of such a kind
-- one tenant alone (not NULL) where more than half of the kind's are his, until the queue has twice as many.
CREATE FUNCTION dead_letter_refused(of_queue text, bound bigint) RETURNS TABLE (kind text, tenant_id text)
LANGUAGE sql STABLE AS $$
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
    WHERE whole.entries >= bound AND kinds.entries >= whole.share
$$;

DO $$
DECLARE
    made text := pg_get_functiondef('fairlead_enqueue'::regproc);
    change text[] := ARRAY[
        $old$        AND fairlead_enqueue.kind IN (  -- as dead_letter_full.sql has it (Q10)
            SELECT d.kind FROM dead_letter d WHERE d.queue = fairlead_enqueue.queue AND d.status = 'pending_review'
            GROUP BY d.kind
            HAVING count(*) >= (
                SELECT CASE WHEN sum(entries) >= dead_letter_bound THEN avg(entries) ELSE 'Infinity' END
                FROM (SELECT count(*) AS entries FROM dead_letter o
                      WHERE o.queue = fairlead_enqueue.queue AND o.status = 'pending_review' GROUP BY o.kind) AS open))
$old$,
        $new$        AND (SELECT count(*) FROM dead_letter d
             WHERE d.queue = fairlead_enqueue.queue AND d.status = 'pending_review') >= dead_letter_bound
        AND EXISTS (
            SELECT FROM dead_letter_refused(fairlead_enqueue.queue, dead_letter_bound) AS r
            WHERE r.kind = fairlead_enqueue.kind
                AND coalesce(r.tenant_id, fairlead_enqueue.tenant) = fairlead_enqueue.tenant)
$new$];
BEGIN
    IF strpos(made, change[1]) = 0 THEN
        RAISE 'fairlead_enqueue has no %', change[1];
    END IF;
    EXECUTE replace(made, change[1], change[2]);
END $$;
