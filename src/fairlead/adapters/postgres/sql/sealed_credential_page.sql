-- sealed_credential_page: read a page of sealed credentials, to verify them or to seal them anew.
-- Takes   retired_only (only those under keys that are not current), after (id; NULL: the first page), limit
-- Returns record_id, connection_id, tenant_id, provider, generation, sealed, key_id, in the order of their ids
-- Locks   nothing
-- Needs   the primary keys; credential_key_idx (key_id)
SELECT cr.connection_id AS record_id, cr.connection_id, cr.tenant_id, c.provider, cr.generation,
    cr.sealed, cr.key_id
FROM credential cr JOIN connection c USING (connection_id)
WHERE (:after::uuid IS NULL OR cr.connection_id > :after)
    AND (NOT :retired_only::boolean
        OR EXISTS (SELECT FROM data_key k WHERE k.key_id = cr.key_id AND NOT k.current))
ORDER BY cr.connection_id
LIMIT :limit;
