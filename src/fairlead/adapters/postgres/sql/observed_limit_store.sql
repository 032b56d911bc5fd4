-- observed_limit_store: store limits observed in responses.
-- Takes   connection_ids, limit_names, versions, capacities, per_s (arrays of one length, each limit once)
-- Returns nothing
-- Locks   the rows that it changes, in the order of their keys; their connections against removal
-- Needs   the primary key. An observation under newer settings stays, and an unchanged one is not written
INSERT INTO observed_limit (connection_id, tenant_id, limit_name, version, capacity, per_s)
SELECT observation.connection_id, c.tenant_id, observation.limit_name, observation.version,
    observation.capacity, observation.per_s
FROM unnest(:connection_ids::uuid[], :limit_names::text[], :versions::bigint[], :capacities::float8[], :per_s::float8[])
    AS observation (connection_id, limit_name, version, capacity, per_s)
JOIN connection c USING (connection_id)
ORDER BY observation.connection_id, observation.limit_name
ON CONFLICT (connection_id, limit_name) DO UPDATE
SET version = excluded.version, capacity = excluded.capacity, per_s = excluded.per_s, observed_at = now()
WHERE observed_limit.version <= excluded.version
    AND (observed_limit.version, observed_limit.capacity, observed_limit.per_s)
        IS DISTINCT FROM (excluded.version, excluded.capacity, excluded.per_s);
