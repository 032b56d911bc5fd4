-- migration_record: note that a migration was applied.
-- Takes   number, name, phase, checksum
-- Returns nothing
-- Locks   the new row
-- Needs   to run in the migration's own transaction, where it has one
INSERT INTO migration (number, name, phase, checksum)
VALUES (:number::integer, :name::text, :phase::text, :checksum::text)
