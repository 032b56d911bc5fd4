-- gate_first_use: record that from now on slots may be granted under a key prefix.
-- Takes   prefix
-- Returns a row if that was never recorded before: then no slot was ever granted, on any server
-- Locks   the new row; a second insert waits for the first
-- Needs   the primary key
INSERT INTO gate_first_use (prefix)
VALUES (:prefix::text)
ON CONFLICT (prefix) DO NOTHING
RETURNING prefix;
