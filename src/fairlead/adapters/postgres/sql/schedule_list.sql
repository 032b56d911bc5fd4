-- schedule_list: all cron entries with their last ticks, and the database's now to judge them by.
-- Takes   nothing
-- Gives   the columns of Schedule, last_tick, now, pause_at, pause_by, pause_why
-- Locks   nothing
-- Needs   nothing: the table is small
SELECT name, expression, kind, tenant_id, timezone, missed, queue, priority, args,
    extract(epoch FROM jitter)::float8 AS jitter_s, paused, last_tick, now() AS now, pause_at, pause_by, pause_why
FROM schedule
ORDER BY name
