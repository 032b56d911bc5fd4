-- migration_list: list the migrations that were applied to this schema.
-- Takes   nothing
-- Returns number, name, phase, checksum, applied_at, by number
-- Locks   nothing
-- Needs   the table
SELECT number, name, phase, checksum, applied_at FROM migration ORDER BY number
