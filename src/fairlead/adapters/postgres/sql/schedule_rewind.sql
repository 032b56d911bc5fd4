-- schedule_rewind: restart schedules with a last run in the future, because the clock was set back.
-- Takes   nothing
-- Returns name of each
-- Locks   their rows
-- Needs   nothing. The table is small. Up to a minute in the future is accepted, because the clocks of servers
--         differ
UPDATE schedule SET last_run_at = now() WHERE last_run_at > now() + interval '1 minute' RETURNING name
