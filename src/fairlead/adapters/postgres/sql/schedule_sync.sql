-- schedule_sync: store the declared cron entries; their last runs and operators' pauses stay as they are.
-- Takes   arrays of one length: names, expressions, kinds, tenant_ids, timezones, missed, queues, priorities,
--         args, jitters_s, paused
-- Returns nothing
-- Locks   the rows that change, in the order of their names
-- Needs   the primary key. An entry that is no longer declared paused begins now: the runs of that time are not
--         missed. Nor are earlier runs that only a new expression names
INSERT INTO schedule AS s
    (name, expression, kind, tenant_id, timezone, missed, queue, priority, args, jitter, paused)
SELECT i.name, i.expression, i.kind, i.tenant_id, i.timezone, i.missed, i.queue, i.priority, i.args,
    i.jitter_s * interval '1 second', i.paused
FROM unnest(
    :names::text[], :expressions::text[], :kinds::text[], :tenant_ids::text[], :timezones::text[], :missed::text[],
    :queues::text[], :priorities::smallint[], :args::jsonb[], :jitters_s::float8[], :paused::boolean[])
    AS i (name, expression, kind, tenant_id, timezone, missed, queue, priority, args, jitter_s, paused)
ORDER BY i.name
ON CONFLICT (name) DO UPDATE SET
    expression = excluded.expression, kind = excluded.kind, tenant_id = excluded.tenant_id,
    timezone = excluded.timezone, missed = excluded.missed, queue = excluded.queue, priority = excluded.priority,
    args = excluded.args, jitter = excluded.jitter, paused = excluded.paused, updated_at = now(),
    last_run_at = CASE WHEN s.paused AND NOT excluded.paused
                         OR (s.expression, s.timezone) IS DISTINCT
                             FROM (excluded.expression, excluded.timezone) THEN greatest(s.last_run_at, now())
                                 ELSE s.last_run_at END
WHERE (s.expression, s.kind, s.tenant_id, s.timezone, s.missed, s.queue, s.priority, s.args, s.jitter, s.paused)
    IS DISTINCT FROM (excluded.expression, excluded.kind, excluded.tenant_id, excluded.timezone, excluded.missed,
                      excluded.queue, excluded.priority, excluded.args, excluded.jitter, excluded.paused)
