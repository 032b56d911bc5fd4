-- credential_read: read connections by name, each with its credential and its refresh in flight.
-- Takes   tenants, providers, accounts (arrays of one length)
-- Returns a row for each connection that exists: its position in the arrays (ord), and credential_detail
-- Locks   nothing
-- Needs   connection's unique index (tenant_id, provider, account)
SELECT input.ord, d.*
FROM unnest(:tenants::text[], :providers::text[], :accounts::text[])
    WITH ORDINALITY AS input (tenant_id, provider, account, ord)
JOIN credential_detail d USING (tenant_id, provider, account);
