-- data_key_foreign: read a page of the data keys that another master key wrapped.
-- Takes   master_id (the current master key), current_only, after (key id; NULL: the first page), limit
-- Returns key_id, tenant_id, master_id, wrapped, current, in the order of their ids
-- Locks   nothing
-- Needs   the primary key
SELECT key_id, tenant_id, master_id, wrapped, current
FROM data_key
WHERE master_id <> :master_id
    AND (current OR NOT :current_only::boolean)
    AND (:after::uuid IS NULL OR key_id > :after)
ORDER BY key_id
LIMIT :limit;
