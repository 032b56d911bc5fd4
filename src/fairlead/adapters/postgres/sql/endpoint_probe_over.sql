-- endpoint_probe_over: a probe's request never left; the next connection may be the probe at once.
-- Takes   provider, app, place (row names)
-- Gives   nothing
-- Locks   the endpoint's rows
-- Needs   the primary key
UPDATE endpoint_gate SET probe_until = NULL
WHERE provider = :provider AND client_id IN (:app, :place) AND probe_until IS NOT NULL;
