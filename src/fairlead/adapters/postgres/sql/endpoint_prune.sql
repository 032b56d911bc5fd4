-- endpoint_prune: delete token endpoints and back-offs that no refresh has used for a long time.
-- Takes   older_than_s
-- Returns one row: deleted
-- Locks   the rows that it deletes; never waits for another process
-- Needs   nothing. Both tables are small. Each refresh updates the rows that it uses, even while they are
--         closed, and creates those that are missing
WITH unused_gate AS MATERIALIZED (
    SELECT provider, client_id FROM endpoint_gate
    WHERE greatest(refilled_at, changed_at) < now() - :older_than_s::float8 * interval '1 second'
    LIMIT 1000 FOR UPDATE SKIP LOCKED
),
deleted_gate AS (
    DELETE FROM endpoint_gate g USING unused_gate WHERE g.provider = unused_gate.provider
        AND g.client_id = unused_gate.client_id RETURNING 1
),
deleted_backoff AS (
    DELETE FROM refresh_backoff WHERE retry_at < now() - :older_than_s::float8 * interval '1 second' RETURNING 1
)
SELECT (SELECT count(*) FROM deleted_gate) + (SELECT count(*) FROM deleted_backoff) AS deleted;
