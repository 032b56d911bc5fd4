-- endpoint_insert: the first sight of a token endpoint; its bucket starts full, its breaker closed.
-- Takes   provider, client_id, burst
-- Gives   nothing
-- Locks   the new row
-- Needs   the primary key: who comes second changes nothing
INSERT INTO endpoint_gate (provider, client_id, permits) VALUES (:provider, :client_id, :burst)
ON CONFLICT (provider, client_id) DO NOTHING;
