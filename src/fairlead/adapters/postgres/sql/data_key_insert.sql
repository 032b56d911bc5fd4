-- data_key_insert: store a tenant's first data key, unless another process was faster.
-- Takes   key_id, tenant_id, master_id, wrapped
-- Returns key_id; no row if the tenant has a current key already
-- Locks   the new row; waits for another process that inserts one for the same tenant
-- Needs   data_key_current_idx (tenant_id) WHERE current
INSERT INTO data_key (key_id, tenant_id, master_id, wrapped)
VALUES (:key_id, :tenant_id, :master_id, :wrapped)
ON CONFLICT (tenant_id) WHERE current DO NOTHING
RETURNING key_id;
