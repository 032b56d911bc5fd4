-- endpoint_insert: the first sight of a token endpoint; its bucket starts full, its breaker closed.
-- Takes   provider, names (of rows), burst
-- Returns nothing
-- Locks   the new rows
-- Needs   the primary key: a second insert changes nothing
INSERT INTO endpoint_gate (provider, client_id, permits)
SELECT :provider, name, :burst FROM unnest(:names::text[]) AS name ORDER BY name
ON CONFLICT (provider, client_id) DO NOTHING;
