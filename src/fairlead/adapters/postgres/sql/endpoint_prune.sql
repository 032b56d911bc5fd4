-- endpoint_prune: delete token endpoints and back-offs that no refresh has used for a long time.
-- Takes   older_than_s
-- Returns one row: deleted
-- Locks   the rows deleted; never waits for another process
-- Needs   a row of an app or host in use is asked about at each refresh, also while it is closed; one that is gone is
--         made again. Both tables are small
WITH old AS MATERIALIZED (
    SELECT provider, client_id FROM endpoint_gate
    WHERE greatest(refilled_at, changed_at) < now() - :older_than_s::float8 * interval '1 second'
    LIMIT 1000 FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM endpoint_gate g USING old WHERE g.provider = old.provider AND g.client_id = old.client_id RETURNING 1
),
over AS (
    DELETE FROM refresh_backoff WHERE retry_at < now() - :older_than_s::float8 * interval '1 second' RETURNING 1
)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM over) AS deleted;
