-- migration_table: the record of migrations, made before the first of them.
-- Takes   nothing
-- Returns nothing
-- Locks   nothing once the table is there
-- Needs   the right to create tables in the schema
CREATE TABLE IF NOT EXISTS migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    phase text NOT NULL CHECK (phase IN ('pre', 'post')),
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
