-- gate_connection: connections by name as the gate needs them: no secrets, but their observed limits.
-- Takes   tenants, providers, accounts (arrays of one length)
-- Returns a row per connection that exists: its position in the arrays (ord), its columns, its version (as in
--         credential_detail); of this version alone learnt: limit name to [capacity, per_s], slots, and
--         slots_version: since when that many are known, in microseconds (NULL: never observed); and existed_s: since
--         when there is a connection of the tenant to that account, if it is at most an hour and if the tenant has
--         at most a hundred connections to the provider, else NULL
-- Locks   nothing
-- Needs   connection's unique index (tenant_id, provider, account), the primary key of observed_limit
SELECT wanted.ord, c.connection_id, c.tenant_id, c.provider, c.account, c.variant, c.account_id, c.client_id,
       c.endpoint, c.settings, own.version, learnt.learnt, learnt.slots, learnt.slots_version, age.existed_s
FROM unnest(:tenants::text[], :providers::text[], :accounts::text[])
    WITH ORDINALITY AS wanted (tenant_id, provider, account, ord)
JOIN connection c USING (tenant_id, provider, account)
CROSS JOIN LATERAL (SELECT (extract(epoch FROM c.updated_at) * 1000000)::bigint AS version) AS own
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_object_agg(l.limit_name, jsonb_build_array(l.capacity, l.per_s))
                    FILTER (WHERE l.limit_name <> '*slots'), '{}') AS learnt,
           max(l.capacity) FILTER (WHERE l.limit_name = '*slots') AS slots,
           max((extract(epoch FROM l.observed_at) * 1000000)::bigint)
               FILTER (WHERE l.limit_name = '*slots') AS slots_version
    FROM observed_limit l WHERE l.connection_id = c.connection_id AND l.version = own.version
) AS learnt
LEFT JOIN LATERAL (
    SELECT extract(
        epoch FROM now() - min(known.created_at) FILTER (WHERE known.account = coalesce(c.account_id, c.account))
    )::float8 AS existed_s
    FROM (
        SELECT coalesce(other.account_id, other.account) AS account, other.created_at
        FROM connection other WHERE other.tenant_id = c.tenant_id AND other.provider = c.provider LIMIT 101
    ) AS known
    HAVING count(*) <= 100
) AS age ON c.created_at BETWEEN now() - interval '1 hour' AND now();
