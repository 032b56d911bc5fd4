-- dead_letter_due: read the open entries that the processor must act on, the longest overdue first.
-- Takes   limit
-- Returns the columns of DeadLetter; regranted: its connection got a new grant after the last failure
-- Locks   nothing. The processor changes an entry by compare-and-set
-- Needs   dead_letter_due_idx, which leaves out entries that wait for a person
SELECT dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider, connection_id, group_key, priority, category,
    code, reason, details, history, args, unique_key, status, resolution, resolved_by, resolution_reason, resolved_at,
    replays, replay_job_id, reauth_started_at, last_notice_at, token_expires_at, first_at, last_at,
    extract(epoch FROM now() - first_at)::float8 AS age_s,
    category = 'permanent_auth' AND EXISTS (
        SELECT FROM credential c
        WHERE c.connection_id = dead_letter.connection_id AND c.tenant_id = dead_letter.tenant_id
            AND c.state = 'active' AND c.granted_at > last_at) AS regranted
FROM dead_letter
WHERE status = 'pending_review' AND action_due_at IS NOT NULL AND action_due_at <= now()
ORDER BY action_due_at, first_at
LIMIT :limit
