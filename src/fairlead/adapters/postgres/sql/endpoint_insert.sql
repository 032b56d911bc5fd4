-- endpoint_insert: create the rows of a token endpoint at its first use, with a full bucket and a closed
-- breaker.
-- Takes   provider, names (of rows), burst
-- Returns nothing
-- Locks   the new rows
-- Needs   the primary key. A repeat changes nothing
INSERT INTO endpoint_gate (provider, client_id, permits)
SELECT :provider, name, :burst FROM unnest(:names::text[]) AS name ORDER BY name
ON CONFLICT (provider, client_id) DO NOTHING;
