-- migration_record: record that a migration was applied.
-- Takes   number, name, phase, checksum
-- Returns nothing
-- Locks   the new row
-- Needs   the migration's own transaction, if it has one
INSERT INTO migration (number, name, phase, checksum)
VALUES (:number::integer, :name::text, :phase::text, :checksum::text)
