-- endpoint_backoff: read what delays the next refresh of one connection, for an operator.
-- Takes   connection_id, generation
-- Returns held_s, held_for (why); no row if nothing does
-- Locks   nothing
-- Needs   the primary key
SELECT extract(epoch FROM retry_at - now())::float8 AS held_s, reason AS held_for
FROM refresh_backoff WHERE connection_id = :connection_id AND generation = :generation AND retry_at > now();
