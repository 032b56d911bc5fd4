-- schedule_list: list all cron entries with their last runs, and the database's time to compare them with.
-- Takes   nothing
-- Returns the columns of Schedule, last_run_at, now, pause_at, pause_by, pause_reason, unhandled_s (since a worker
--         last reported that it takes the kind, or since the schedule was declared)
-- Locks   nothing
-- Needs   nothing. The table is small
SELECT s.name, s.expression, s.kind, s.tenant_id, s.timezone, s.missed, s.queue, s.priority, s.args,
    extract(epoch FROM s.jitter)::float8 AS jitter_s, s.paused, s.last_run_at, now() AS now, s.pause_at, s.pause_by,
    s.pause_reason, greatest(0, extract(epoch FROM now() - coalesce(h.handled_at, s.updated_at)))::float8 AS unhandled_s
FROM schedule s LEFT JOIN kind_handler h ON h.queue = s.queue AND h.kind = s.kind
ORDER BY s.name
