-- endpoint_pause: the provider refused the client id or secret; nobody sends until a person has mended it.
-- Takes   provider, client_id, reason, secret_fingerprint (of the refused secret)
-- Gives   client_id if this was news
-- Locks   the endpoint's row
-- Needs   the primary key
INSERT INTO endpoint_gate AS g (provider, client_id, state, reason, secret_fingerprint)
VALUES (:provider, :client_id, 'paused', :reason, :secret_fingerprint)
ON CONFLICT (provider, client_id) DO UPDATE SET
    state = 'paused', reason = excluded.reason, secret_fingerprint = excluded.secret_fingerprint, changed_at = now()
WHERE g.secret_fingerprint IS DISTINCT FROM excluded.secret_fingerprint
RETURNING g.client_id;
