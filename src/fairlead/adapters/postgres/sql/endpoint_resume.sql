-- endpoint_resume: a person says that this endpoint may be tried again.
-- Takes   provider, client_id
-- Gives   client_id if there was anything to lift
-- Locks   the endpoint's row
-- Needs   the primary key
UPDATE endpoint_gate SET
    state = 'closed', reason = NULL, failures = 0, openings = 0, open_until = NULL, probe_until = NULL,
    secret_fingerprint = NULL, failing = '{}', limited = '{}', refusing = '{}', changed_at = now()
WHERE provider = :provider AND client_id = :client_id AND (state <> 'closed' OR secret_fingerprint IS NOT NULL)
RETURNING client_id;
