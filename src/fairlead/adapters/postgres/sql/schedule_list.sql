-- schedule_list: all cron entries with their last ticks, and the database's now to judge them by.
-- Takes   nothing
-- Gives   the columns of Schedule, last_tick, now
-- Locks   nothing
-- Needs   nothing: the table is small
SELECT name, expression, kind, tenant_id, timezone, missed, queue, priority, args, paused, last_tick, now() AS now
FROM schedule
ORDER BY name
