-- schedule_pause: pause a schedule for an operator; an existing pause stays as it is.
-- Takes   name, by, reason
-- Returns name; no row if there is no such schedule
-- Locks   its row, so it waits for a run that is being taken
-- Needs   the primary key. A repeat changes nothing
UPDATE schedule SET
    pause_at = coalesce(pause_at, now()), pause_by = coalesce(pause_by, :by::text),
    pause_reason = coalesce(pause_reason, :reason::text)
WHERE name = :name::text
RETURNING name
