-- dead_letter_find: read a page of matching entries in the order of their ids, which rise with time.
-- Takes   status, category, code, tenant_id, provider, kind, queue, older_than_s (each NULL: any), at_rest
--         (only entries without work in progress: no replay, and no open job of their key), after (the last id
--         of the page before, or NULL), oldest_first, limit
-- Returns the columns of DeadLetter
-- Locks   nothing
-- Needs   the primary key; dead_letter_tenant_idx; job_unique_idx
SELECT dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider, connection_id, group_key, priority, category,
    code, reason, details, history, args, unique_key, status, resolution, resolved_by, resolution_reason, resolved_at,
    replays, replay_job_id, reauth_started_at, last_notice_at, token_expires_at, first_at, last_at,
    extract(epoch FROM now() - first_at)::float8 AS age_s
FROM dead_letter
WHERE (:status::text IS NULL OR status = :status) AND (:category::text IS NULL OR category = :category)
    AND (:code::text IS NULL OR code = :code) AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
    AND (:provider::text IS NULL OR provider = :provider) AND (:kind::text IS NULL OR kind = :kind)
    AND (:queue::text IS NULL OR queue = :queue)
    AND (:older_than_s::float8 IS NULL OR first_at <= now() - :older_than_s * interval '1 second')
    AND (NOT :at_rest::boolean OR replay_job_id IS NULL AND NOT EXISTS (
        SELECT FROM job
        WHERE job.kind = dead_letter.kind AND job.tenant_id = dead_letter.tenant_id
            AND job.unique_key = dead_letter.unique_key AND job.unique_live AND job.finished_at IS NULL))
    AND (:after::uuid IS NULL
         OR CASE WHEN :oldest_first::boolean THEN dead_letter_id > :after ELSE dead_letter_id < :after END)
ORDER BY CASE WHEN :oldest_first THEN dead_letter_id END, CASE WHEN NOT :oldest_first THEN dead_letter_id END DESC
LIMIT :limit
