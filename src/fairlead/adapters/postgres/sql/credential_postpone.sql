-- credential_postpone: set when scans read this credential again.
-- Takes   connection_id, generation, due_in_s (NULL: never)
-- Returns nothing
-- Locks   the credential's row
-- Needs   the primary key. A newer generation keeps its own due time
UPDATE credential SET due_at = now() + :due_in_s::float8 * interval '1 second'
WHERE connection_id = :connection_id AND generation = :generation;
