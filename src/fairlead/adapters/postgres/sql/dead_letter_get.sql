-- dead_letter_get: read one entry.
-- Takes   dead_letter_id
-- Returns the columns of DeadLetter, or no row
-- Locks   nothing
-- Needs   the primary key
SELECT dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider, connection_id, group_key, priority, category,
    code, reason, details, history, args, unique_key, status, resolution, resolved_by, resolution_reason, resolved_at,
    replays, replay_job_id, reauth_started_at, last_notice_at, token_expires_at, first_at, last_at,
    extract(epoch FROM now() - first_at)::float8 AS age_s
FROM dead_letter
WHERE dead_letter_id = :dead_letter_id
