-- data_key_current: read the key that seals new records of a tenant.
-- Takes   tenant_id
-- Returns key_id, tenant_id, master_id, wrapped, current; no row if the tenant has no key yet
-- Locks   nothing
-- Needs   data_key_current_idx (tenant_id) WHERE current
SELECT key_id, tenant_id, master_id, wrapped, current FROM data_key WHERE tenant_id = :tenant_id AND current;
