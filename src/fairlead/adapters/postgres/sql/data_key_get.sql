-- data_key_get: read one data key, current or retired.
-- Takes   key_id
-- Returns key_id, tenant_id, master_id, wrapped, current
-- Locks   nothing
-- Needs   the primary key
SELECT key_id, tenant_id, master_id, wrapped, current FROM data_key WHERE key_id = :key_id;
