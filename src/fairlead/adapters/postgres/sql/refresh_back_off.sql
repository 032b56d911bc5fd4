-- refresh_back_off: delay the next refresh of a connection after a failed one; the delay doubles each time.
-- Takes   connection_id, generation, first_s, open_s (the maximum), hint_s (the provider's wait, which may be
--         longer), reason
-- Returns nothing
-- Locks   the back-off's row; the connection's against its deletion
-- Needs   the primary keys. A newer generation starts again with first_s
INSERT INTO refresh_backoff AS b (connection_id, tenant_id, generation, failures, retry_at, reason)
SELECT c.connection_id, c.tenant_id, :generation, 1,
    now() + greatest(least(:first_s::float8, :open_s::float8), :hint_s::float8) * interval '1 second', :reason
FROM connection c WHERE c.connection_id = :connection_id FOR KEY SHARE
ON CONFLICT (connection_id) DO UPDATE SET
    generation = excluded.generation,
    failures = CASE WHEN b.generation = excluded.generation THEN b.failures + 1 ELSE 1 END,
    retry_at = now() + greatest(:hint_s::float8, least(:open_s::float8, :first_s::float8 * power(2, CASE
        WHEN b.generation = excluded.generation THEN least(b.failures, 20) ELSE 0 END))) * interval '1 second',
    reason = excluded.reason
WHERE b.generation <= excluded.generation;
