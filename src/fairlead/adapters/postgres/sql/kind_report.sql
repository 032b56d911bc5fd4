-- kind_report: record that a worker takes these kinds from these queues.
-- Takes   queues, kinds
-- Returns nothing
-- Locks   the changed rows, in key order; another worker changed most of them recently
-- Needs   the primary key. Rows that no worker has reported for a month are deleted
WITH old AS (DELETE FROM kind_handler WHERE handled_at < now() - interval '30 days')
INSERT INTO kind_handler AS h (queue, kind)
SELECT queue, kind FROM unnest(:queues::text[]) AS queue CROSS JOIN unnest(:kinds::text[]) AS kind
ORDER BY queue, kind
ON CONFLICT (queue, kind) DO UPDATE SET handled_at = now()
WHERE h.handled_at < now() - interval '30 seconds' OR h.handled_at > now()
