-- schedule_run_taken: check whether this process took a run, after a schedule_run_take with a commit in doubt.
-- Takes   name, run_at, session_id
-- Returns schedule, or no row
-- Locks   nothing
-- Needs   the primary key
SELECT schedule FROM schedule_run WHERE schedule = :name AND run_at = :run_at AND session_id = :session_id
