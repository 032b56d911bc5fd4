-- gate_start: note that from now on slots may be granted under a prefix.
-- Takes   prefix
-- Gives   a row if that was never noted before: then none was ever granted, on any server
-- Locks   the new row; who comes second waits for who came first
-- Needs   the primary key; '' stands for every prefix; see the migration
INSERT INTO gate_start (prefix)
SELECT :prefix::text WHERE NOT EXISTS (SELECT FROM gate_start WHERE prefix = '')
ON CONFLICT (prefix) DO NOTHING
RETURNING prefix;
