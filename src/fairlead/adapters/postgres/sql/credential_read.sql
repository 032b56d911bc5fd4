-- credential_read: connections by name, each with its credential and the refresh in flight.
-- Takes   tenants, providers, accounts (arrays of one length)
-- Returns a row per connection that exists: its position in the arrays (ord) and credential_detail
-- Locks   nothing
-- Needs   connection's unique index (tenant_id, provider, account)
SELECT wanted.ord, d.*
FROM unnest(:tenants::text[], :providers::text[], :accounts::text[])
    WITH ORDINALITY AS wanted (tenant_id, provider, account, ord)
JOIN credential_detail d USING (tenant_id, provider, account);
