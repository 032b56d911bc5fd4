-- 0023_grant_moment: when a person or an import gave the grant: answers from before are for another one (R11).
-- Phase   pre (the version before it reads the other columns by their names)
-- Needs   0015_last_send. NULL: given before this was noted. Where the version before gives a new grant, the
--         moment of the one before stays: what is older than that is for another grant all the same

-- Generations alone do not tell: where a fail-over takes back a reconnect, the next one gets its generation.
ALTER TABLE credential ADD COLUMN granted_at timestamptz;

CREATE OR REPLACE VIEW credential_detail WITH (security_invoker = true) AS
SELECT c.connection_id, c.tenant_id, c.provider, c.bucket, c.variant, c.account_id, c.client_id,
       c.endpoint, c.settings, cr.state, cr.state_reason, cr.generation, cr.settled_epoch, cr.sealed,
       cr.key_id, cr.refreshable, cr.expires_at, now() AS read_at,
       extract(epoch FROM cr.expires_at - now())::float8 AS expires_in_s,
       extract(epoch FROM cr.urgent_at - now())::float8 AS urgent_in_s,
       extract(epoch FROM cr.critical_at - now())::float8 AS critical_in_s,
       extract(epoch FROM cr.due_at - now())::float8 AS due_in_s,
       extract(epoch FROM now() - cr.refreshed_at)::float8 AS refreshed_age_s,
       r.rotation_id, r.from_generation, r.epoch, r.phase, r.session_id, r.replays,
       extract(epoch FROM now() - r.sent_at)::float8 AS age_sent_s,
       r.lease_until < now() AS expired,
       s.session_id IS NULL OR s.lost_at IS NOT NULL OR s.stopped_at IS NOT NULL AS owner_lost,
       (extract(epoch FROM c.updated_at) * 1000000)::bigint AS version,
       extract(epoch FROM now() - CASE WHEN r.sent_at IS NOT NULL THEN r.started_at END)::float8 AS age_last_sent_s,
       cr.granted_at
FROM connection c
JOIN credential cr USING (connection_id)
LEFT JOIN rotation r USING (connection_id)
LEFT JOIN worker_session s ON s.session_id = r.session_id;
