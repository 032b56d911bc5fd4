-- migration_table: create the table that records migrations.
-- Takes   nothing
-- Returns nothing
-- Locks   nothing if the table exists
-- Needs   the right to create tables in the schema
CREATE TABLE IF NOT EXISTS migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    phase text NOT NULL CHECK (phase IN ('pre', 'post')),
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
