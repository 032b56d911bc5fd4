-- data_key_samples: one data key of each master key that wrapped any.
-- Takes   nothing
-- Returns key_id, tenant_id, master_id, wrapped, current
-- Locks   nothing
-- Needs   nothing: a scan of one row a tenant, once at start
SELECT DISTINCT ON (master_id) key_id, tenant_id, master_id, wrapped, current
FROM data_key
ORDER BY master_id, key_id;
