-- sealed_withheld_page: a page of withheld answers, to be verified or sealed anew.
-- Takes   retired_only (only those under keys that are not current), after (id, NULL for the first), limit
-- Gives   record_id, connection_id, tenant_id, provider, generation, sealed, key_id, in the order of their ids
-- Locks   nothing
-- Needs   the primary keys; withheld_answer_key_idx (key_id)
SELECT w.withheld_id AS record_id, w.connection_id, w.tenant_id, c.provider,
    w.from_generation AS generation, w.sealed, w.key_id
FROM withheld_answer w JOIN connection c USING (connection_id)
WHERE (:after::uuid IS NULL OR w.withheld_id > :after)
    AND (NOT :retired_only::boolean
        OR EXISTS (SELECT FROM data_key k WHERE k.key_id = w.key_id AND NOT k.current))
ORDER BY w.withheld_id
LIMIT :limit;
