-- schedule_resume: a person's pause ends; what fell into it is let go, unless it shall be made up.
-- Takes   name, make_up
-- Returns name, or no row if there is no such schedule
-- Locks   its row
-- Needs   the primary key; done again, it changes nothing
UPDATE schedule SET
    last_run_at = CASE WHEN pause_at IS NULL OR :make_up::boolean THEN last_run_at ELSE greatest(last_run_at, now()) END,
    pause_at = NULL, pause_by = NULL, pause_reason = NULL
WHERE name = :name::text
RETURNING name
