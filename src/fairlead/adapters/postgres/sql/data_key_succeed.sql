-- data_key_succeed: store a new current key for a tenant; the old one stays, to open what it sealed.
-- Takes   old_key_id, key_id, master_id, wrapped
-- Returns key_id; no row if the old key was not current any more
-- Locks   the old and the new row
-- Needs   the primary key. The old row leaves data_key_current_idx before the new one enters it
WITH old_key AS (
    UPDATE data_key SET current = false WHERE key_id = :old_key_id AND current RETURNING tenant_id
)
INSERT INTO data_key (key_id, tenant_id, master_id, wrapped)
SELECT :key_id, tenant_id, :master_id, :wrapped FROM old_key
RETURNING key_id;
