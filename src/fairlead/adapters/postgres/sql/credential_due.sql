-- credential_due: read a page of the credentials that a scan should refresh or report, in the order of due_at.
-- Takes   after_due_at, after_id (the end of the page before), cool_down_s, urgent_only, limit
-- Returns connection_id, its name, generation, priority (0 critical, 1 urgent, 2 normal), refreshable, expired,
--         due_at
-- Locks   nothing
-- Needs   credential_due_idx (due_at, connection_id) WHERE due_at IS NOT NULL. After a discarded refresh a
--         connection is left out until its dead letter is cool_down_s old (R14)
SELECT cr.connection_id, cr.tenant_id, cr.provider, cr.account, cr.generation, cr.refreshable, cr.due_at,
       CASE WHEN cr.critical_at <= now() THEN 0 WHEN cr.urgent_at <= now() THEN 1 ELSE 2 END AS priority,
       coalesce(cr.expires_at <= now(), false) AS expired
FROM credential cr
WHERE cr.due_at <= now() AND (cr.due_at, cr.connection_id) > (:after_due_at::timestamptz, :after_id::uuid)
    AND (NOT :urgent_only::boolean OR cr.urgent_at <= now())
    AND NOT EXISTS (
        SELECT FROM dead_letter d
        WHERE d.connection_id = cr.connection_id AND d.status = 'pending_review'
            AND d.kind = 'token.refresh' AND abs(extract(epoch FROM now() - d.last_at)) < :cool_down_s::float8)
ORDER BY cr.due_at, cr.connection_id
LIMIT :limit;
