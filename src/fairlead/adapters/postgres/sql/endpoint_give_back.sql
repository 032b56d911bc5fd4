-- endpoint_give_back: release the permit of a request that was not sent, and its claim to be the probe.
-- Takes   provider, app, place, bucket (row names), probe (this was the probe)
-- Returns nothing
-- Locks   the endpoint's rows (endpoint_gate_lock)
-- Needs   the primary key. The next permit reduces a bucket that holds more than its capacity
UPDATE endpoint_gate g SET
    permits = g.permits + (g.client_id = :bucket)::integer,
    probe_until = CASE WHEN NOT :probe::boolean THEN g.probe_until END
FROM endpoint_gate_lock(:provider, ARRAY[:app, :place, :bucket]) AS locked_gate
WHERE g.provider = :provider AND g.client_id = locked_gate.client_id;
