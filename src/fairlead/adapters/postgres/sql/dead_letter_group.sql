-- dead_letter_group: count matching entries by one of their columns, the most frequent value first.
-- Takes   by (category, code, tenant_id, provider, kind, queue, status); as in dead_letter_find: status,
--         category, code, tenant_id, provider, kind, queue, older_than_s; limit
-- Returns value, entries, oldest_age_s
-- Locks   nothing
-- Needs   nothing. The bound and the retention limit the number of entries
SELECT value, count(*) AS entries, extract(epoch FROM now() - min(first_at))::float8 AS oldest_age_s
FROM (
    SELECT first_at, CASE :by::text
        WHEN 'category' THEN category WHEN 'code' THEN code WHEN 'tenant_id' THEN tenant_id
        WHEN 'provider' THEN provider WHEN 'kind' THEN kind WHEN 'queue' THEN queue ELSE status END AS value
    FROM dead_letter
    WHERE (:status::text IS NULL OR status = :status) AND (:category::text IS NULL OR category = :category)
        AND (:code::text IS NULL OR code = :code) AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
        AND (:provider::text IS NULL OR provider = :provider) AND (:kind::text IS NULL OR kind = :kind)
        AND (:queue::text IS NULL OR queue = :queue)
        AND (:older_than_s::float8 IS NULL OR first_at <= now() - :older_than_s * interval '1 second')
) AS entry
GROUP BY value
ORDER BY entries DESC, value
LIMIT :limit
