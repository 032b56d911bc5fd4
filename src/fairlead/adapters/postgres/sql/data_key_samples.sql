-- data_key_samples: read one data key of each master key that wrapped any.
-- Takes   nothing
-- Returns key_id, tenant_id, master_id, wrapped, current
-- Locks   nothing
-- Needs   nothing. It reads the whole table, which has a few rows per tenant, once at start
SELECT DISTINCT ON (master_id) key_id, tenant_id, master_id, wrapped, current
FROM data_key
ORDER BY master_id, key_id;
