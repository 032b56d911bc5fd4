-- endpoint_give_back: a permitted request never left: its permit is free again, and so is the place of the probe.
-- Takes   provider, app, place, bucket (row names), probe (ours was the probe)
-- Gives   nothing
-- Locks   the endpoint's rows, by name
-- Needs   the primary key; a bucket that holds too much is cut at the next permit
WITH gates AS MATERIALIZED (
    SELECT client_id FROM endpoint_gate WHERE provider = :provider AND client_id IN (:app, :place, :bucket)
    ORDER BY client_id FOR UPDATE
)
UPDATE endpoint_gate g SET
    permits = g.permits + (g.client_id = :bucket)::integer,
    probe_until = CASE WHEN NOT :probe::boolean THEN g.probe_until END
FROM gates WHERE g.provider = :provider AND g.client_id = gates.client_id;
