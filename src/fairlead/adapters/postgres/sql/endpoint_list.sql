-- endpoint_list: list token endpoints for an operator.
-- Takes   nothing
-- Returns provider, client_id, state, reason, failures, open_for_s, changed_at
-- Locks   nothing
-- Needs   nothing. The table has a few rows per app
SELECT provider, client_id, state, reason, failures,
    extract(epoch FROM open_until - now())::float8 AS open_for_s, changed_at
FROM endpoint_gate
ORDER BY provider, client_id;
