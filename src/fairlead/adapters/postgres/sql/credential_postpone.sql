-- credential_postpone: when scans look at this credential again.
-- Takes   connection_id, generation, due_in_s (NULL: never)
-- Returns nothing
-- Locks   the credential's row
-- Needs   the primary key; a newer generation keeps its own due time
UPDATE credential SET due_at = now() + :due_in_s::float8 * interval '1 second'
WHERE connection_id = :connection_id AND generation = :generation;
