-- refresh_attempt_unsettled: list refreshes that were sent by a process that has ended or lost its lease.
-- Takes   limit, cool_down_s
-- Returns connection_id, its name, generation
-- Locks   nothing
-- Needs   nothing. The table is small, because it holds only refreshes in flight, and is read as a whole. After
--         a discarded refresh a connection is left out until its dead letter is cool_down_s old (R14), as in
--         credential_due
SELECT r.connection_id, c.tenant_id, c.provider, c.account, r.from_generation AS generation
FROM refresh_attempt r
JOIN connection c USING (connection_id)
LEFT JOIN worker_session s ON s.session_id = r.session_id
WHERE r.phase = 'sent'
    AND (r.lease_until < now() OR s.session_id IS NULL OR s.lost_at IS NOT NULL OR s.stopped_at IS NOT NULL)
    AND NOT EXISTS (
        SELECT FROM dead_letter d
        WHERE d.connection_id = r.connection_id AND d.status = 'pending_review'
            AND d.kind = 'token.refresh' AND abs(extract(epoch FROM now() - d.last_at)) < :cool_down_s::float8)
ORDER BY r.started_at
LIMIT :limit;
