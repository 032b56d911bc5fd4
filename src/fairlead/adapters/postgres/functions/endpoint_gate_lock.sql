-- endpoint_gate_lock: lock the rows of one token endpoint, and return them.
-- Takes   of_provider, names: client ids
-- Returns rows of endpoint_gate, by client_id
-- Locks   these rows in the order of client_id. It raises 55P03 after 400 ms, so that a row which another
--         transaction has locked does not delay the other endpoints
-- Needs   nothing
CREATE FUNCTION endpoint_gate_lock(of_provider text, names text[]) RETURNS SETOF endpoint_gate
LANGUAGE sql ROWS 3
SET search_path FROM CURRENT SET lock_timeout = '400ms'
AS $$
    SELECT * FROM endpoint_gate g WHERE g.provider = of_provider AND g.client_id = ANY (names)
    ORDER BY g.client_id FOR UPDATE
$$;
