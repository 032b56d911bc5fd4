-- duty_taken: whether this process took a tick: reads back duty_take when its commit is in doubt.
-- Takes   name, tick, session_id
-- Gives   schedule, or no row
-- Locks   nothing
-- Needs   the primary key
SELECT schedule FROM duty WHERE schedule = :name AND tick = :tick AND session_id = :session_id
