-- credential_sealed_under: records that are sealed under given data keys, to be sealed anew.
-- Takes   key_ids, limit
-- Gives   connection_id, tenant_id, provider, generation, sealed, key_id
-- Locks   nothing
-- Needs   credential_key_idx (key_id)
SELECT cr.connection_id, cr.tenant_id, c.provider, cr.generation, cr.sealed, cr.key_id
FROM credential cr JOIN connection c USING (connection_id)
WHERE cr.key_id = ANY(:key_ids::uuid[])
ORDER BY cr.connection_id
LIMIT :limit;
