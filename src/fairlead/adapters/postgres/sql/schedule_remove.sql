-- schedule_remove: delete a schedule; the records of its runs stay until they are pruned.
-- Takes   name
-- Returns name; no row if there was none
-- Locks   its row
-- Needs   the primary key
DELETE FROM schedule WHERE name = :name RETURNING name
