-- schedule_remove: forget a schedule; the record of its runs stays until it is pruned.
-- Takes   name
-- Returns name, or no row if it was gone
-- Locks   its row
-- Needs   the primary key
DELETE FROM schedule WHERE name = :name RETURNING name
