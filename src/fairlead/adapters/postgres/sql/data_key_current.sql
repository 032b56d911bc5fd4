-- data_key_current: the key that seals new records of a tenant.
-- Takes   tenant_id
-- Returns key_id, tenant_id, master_id, wrapped, current; no row for a tenant that has none yet
-- Locks   nothing
-- Needs   data_key_current_idx (tenant_id) WHERE current
SELECT key_id, tenant_id, master_id, wrapped, current FROM data_key WHERE tenant_id = :tenant_id AND current;
