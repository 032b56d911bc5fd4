-- schedule_rewind: restart schedules with their last run in the future, because the clock was set back.
-- Takes   nothing
-- Returns name of each
-- Locks   their rows
-- Needs   nothing: the table is small. A minute is left for servers with slightly different clocks
UPDATE schedule SET last_run_at = now() WHERE last_run_at > now() + interval '1 minute' RETURNING name
