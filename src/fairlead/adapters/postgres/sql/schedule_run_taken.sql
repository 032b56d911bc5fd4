-- schedule_run_taken: whether this process took a tick: reads back schedule_run_take when its commit is in doubt.
-- Takes   name, tick, session_id
-- Returns schedule, or no row
-- Locks   nothing
-- Needs   the primary key
SELECT schedule FROM schedule_run WHERE schedule = :name AND tick = :tick AND session_id = :session_id
