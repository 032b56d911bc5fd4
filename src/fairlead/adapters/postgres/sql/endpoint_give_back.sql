-- endpoint_give_back: release the permit of a request that was not sent, and the place of its probe.
-- Takes   provider, app, place, bucket (row names), probe (ours was the probe)
-- Returns nothing
-- Locks   the endpoint's rows (endpoint_gate_lock)
-- Needs   the primary key; a bucket that holds too much is cut at the next permit
UPDATE endpoint_gate g SET
    permits = g.permits + (g.client_id = :bucket)::integer,
    probe_until = CASE WHEN NOT :probe::boolean THEN g.probe_until END
FROM endpoint_gate_lock(:provider, ARRAY[:app, :place, :bucket]) AS gates
WHERE g.provider = :provider AND g.client_id = gates.client_id;
