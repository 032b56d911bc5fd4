-- schedule_resume: end an operator's pause; the runs that it skipped are dropped, unless make_up is true.
-- Takes   name, make_up
-- Returns name; no row if there is no such schedule
-- Locks   its row
-- Needs   the primary key. A repeat changes nothing
UPDATE schedule SET
    last_run_at = CASE WHEN pause_at IS NULL OR :make_up::boolean THEN last_run_at ELSE greatest(last_run_at, now()) END,
    pause_at = NULL, pause_by = NULL, pause_reason = NULL
WHERE name = :name::text
RETURNING name
