-- endpoint_healthy: the endpoint answered; failures are forgotten and the breaker closes.
-- Takes   provider, client_id
-- Gives   the state it had, if anything changed
-- Locks   the endpoint's row
-- Needs   the primary key; a pause stays: it is not about health
UPDATE endpoint_gate SET
    state = CASE WHEN state = 'open' THEN 'closed' ELSE state END, failures = 0, openings = 0,
    open_until = NULL, probe_until = NULL,
    changed_at = CASE WHEN state = 'open' THEN now() ELSE changed_at END
WHERE provider = :provider AND client_id = :client_id AND (failures > 0 OR state = 'open')
RETURNING state;
