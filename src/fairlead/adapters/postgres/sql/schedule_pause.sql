-- schedule_pause: a person stops a schedule; a pause that stands is left as it is.
-- Takes   name, by, reason
-- Returns name, or no row if there is no such schedule
-- Locks   its row: a run that is being taken is taken first
-- Needs   the primary key; done again, it changes nothing
UPDATE schedule SET
    pause_at = coalesce(pause_at, now()), pause_by = coalesce(pause_by, :by::text),
    pause_reason = coalesce(pause_reason, :reason::text)
WHERE name = :name::text
RETURNING name
