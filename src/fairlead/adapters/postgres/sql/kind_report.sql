-- kind_report: record that a worker takes these kinds from these queues.
-- Takes   queues, kinds
-- Returns nothing
-- Locks   the rows that it changes, in key order; other workers have just changed most of them
-- Needs   the primary key. It deletes rows that no worker has reported for a month
WITH deleted_handler AS (DELETE FROM kind_handler WHERE handled_at < now() - interval '30 days')
INSERT INTO kind_handler AS h (queue, kind)
SELECT queue, kind FROM unnest(:queues::text[]) AS queue CROSS JOIN unnest(:kinds::text[]) AS kind
ORDER BY queue, kind
ON CONFLICT (queue, kind) DO UPDATE SET handled_at = now()
WHERE h.handled_at < now() - interval '30 seconds' OR h.handled_at > now()
