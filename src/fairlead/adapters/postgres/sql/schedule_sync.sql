-- schedule_sync: insert or update cron entries; their last ticks stay as they are.
-- Takes   arrays of one length: names, expressions, kinds, tenant_ids, timezones, missed, queues, priorities,
--         args, paused
-- Gives   nothing
-- Locks   the rows that change, in the order of their names
-- Needs   the primary key
INSERT INTO schedule AS s (name, expression, kind, tenant_id, timezone, missed, queue, priority, args, paused)
SELECT * FROM unnest(
    :names::text[], :expressions::text[], :kinds::text[], :tenant_ids::text[], :timezones::text[], :missed::text[],
    :queues::text[], :priorities::smallint[], :args::jsonb[], :paused::boolean[])
    AS i (name, expression, kind, tenant_id, timezone, missed, queue, priority, args, paused)
ORDER BY i.name
ON CONFLICT (name) DO UPDATE SET
    expression = excluded.expression, kind = excluded.kind, tenant_id = excluded.tenant_id,
    timezone = excluded.timezone, missed = excluded.missed, queue = excluded.queue, priority = excluded.priority,
    args = excluded.args, paused = excluded.paused, updated_at = now()
WHERE (s.expression, s.kind, s.tenant_id, s.timezone, s.missed, s.queue, s.priority, s.args, s.paused)
    IS DISTINCT FROM (excluded.expression, excluded.kind, excluded.tenant_id, excluded.timezone, excluded.missed,
                      excluded.queue, excluded.priority, excluded.args, excluded.paused)
