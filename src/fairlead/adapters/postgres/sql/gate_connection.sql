-- gate_connection: read connections by name as the gate needs them, without secrets, and with their observed
-- limits.
-- Takes   tenants, providers, accounts (arrays of one length)
-- Returns a row for each connection that exists: its position in the arrays (ord), its columns, and its version
--         (as in credential_detail). Of observations made under this version only: observed (limit name to
--         [capacity, per_s]), slots, and slots_version (since when that number is known, in microseconds; NULL:
--         never observed). existed_s: the age of the tenant's first connection to that account; NULL if it is
--         more than an hour old, or if the tenant has more than a hundred connections to the provider
-- Locks   nothing
-- Needs   connection's unique index (tenant_id, provider, account), the primary key of observed_limit
SELECT input.ord, c.connection_id, c.tenant_id, c.provider, c.account, c.variant, c.account_id, c.client_id,
       c.endpoint, c.settings, current.version, observed.observed, observed.slots, observed.slots_version, age.existed_s
FROM unnest(:tenants::text[], :providers::text[], :accounts::text[])
    WITH ORDINALITY AS input (tenant_id, provider, account, ord)
JOIN connection c USING (tenant_id, provider, account)
CROSS JOIN LATERAL (SELECT (extract(epoch FROM c.updated_at) * 1000000)::bigint AS version) AS current
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_object_agg(l.limit_name, jsonb_build_array(l.capacity, l.per_s))
                    FILTER (WHERE l.limit_name <> '*slots'), '{}') AS observed,
           max(l.capacity) FILTER (WHERE l.limit_name = '*slots') AS slots,
           max((extract(epoch FROM l.observed_at) * 1000000)::bigint)
               FILTER (WHERE l.limit_name = '*slots') AS slots_version
    FROM observed_limit l WHERE l.connection_id = c.connection_id AND l.version = current.version
) AS observed
LEFT JOIN LATERAL (
    SELECT extract(
        epoch FROM now() - min(sibling.created_at) FILTER (WHERE sibling.account = coalesce(c.account_id, c.account))
    )::float8 AS existed_s
    FROM (
        SELECT coalesce(sibling.account_id, sibling.account) AS account, sibling.created_at
        FROM connection sibling WHERE sibling.tenant_id = c.tenant_id AND sibling.provider = c.provider LIMIT 101
    ) AS sibling
    HAVING count(*) <= 100
) AS age ON c.created_at BETWEEN now() - interval '1 hour' AND now();
