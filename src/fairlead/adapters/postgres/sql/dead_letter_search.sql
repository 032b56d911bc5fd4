-- dead_letter_search: the newest entries that fit.
-- Takes   status, category, tenant_id, kind (each NULL: any), limit
-- Gives   the columns of DeadLetter, newest first
-- Locks   nothing
-- Needs   the primary key, whose ids rise with time; dead_letter_tenant_idx
SELECT dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider, connection_id, group_key, priority, category,
    code, reason, details, history, args, unique_key, status, resolution, resolved_by, resolved_why, resolved_at,
    replays, replay_job_id, reauth_started_at, last_notice_at, token_expires_at, first_at, last_at,
    extract(epoch FROM now() - first_at)::float8 AS age_s
FROM dead_letter
WHERE (:status::text IS NULL OR status = :status) AND (:category::text IS NULL OR category = :category)
    AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id) AND (:kind::text IS NULL OR kind = :kind)
ORDER BY dead_letter_id DESC
LIMIT :limit
