-- credential_require_reauth: set needs_reauth by compare-and-set, with its dead letter, audit record and notice
-- job; pause the other work of the connection.
-- Takes   connection_id, generation, attempt_id (NULL: no refresh may be in flight), reason, audit_id, job_id,
--         job_args (of the notification, one per loss), unique_key
-- Returns connection_id; no row if another refresh has won, so that the loser of a race never disables a
--         connection
-- Locks   the credential's row first, as credential_settle does; then the refresh attempt's, the job's lane if
--         it is not ready, and the lanes of the connection
-- Needs   the primary keys; await_grant. The row of the refresh attempt proves that no other process is
--         refreshing
WITH locked_credential AS MATERIALIZED (
    SELECT FROM credential WHERE connection_id = :connection_id FOR NO KEY UPDATE
),
ended_attempt AS (
    DELETE FROM refresh_attempt USING (SELECT count(*) FROM locked_credential) AS lock_count
    WHERE connection_id = :connection_id AND attempt_id = :attempt_id::uuid
    RETURNING connection_id
),
changed_credential AS (
    UPDATE credential SET
        state = 'needs_reauth', state_reason = :reason, state_at = now(), due_at = NULL
    WHERE connection_id = :connection_id AND generation = :generation AND state IN ('active', 'unknown')
        AND CASE WHEN :attempt_id::uuid IS NULL
                 THEN NOT EXISTS (SELECT FROM refresh_attempt r WHERE r.connection_id = :connection_id)
                 ELSE EXISTS (SELECT FROM ended_attempt) END
    RETURNING connection_id, tenant_id, expires_at
),
new_entry AS (  -- a caller or a scan has no job that could be discarded; a discarded job joins this entry
    INSERT INTO dead_letter (
        dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider, connection_id, group_key,
        priority, category, code, reason, args, unique_key, token_expires_at, action_due_at)
    SELECT :job_id::uuid, :job_id::uuid, :job_id::uuid, 'default', 'token.refresh', changed_credential.tenant_id,
           connection.provider, changed_credential.connection_id, changed_credential.connection_id::text, 1,
               'permanent_auth',
           :reason::text, 'only the customer can give a new grant: ' || :reason::text,
           jsonb_build_object('connection_id', changed_credential.connection_id, 'generation', :generation::bigint),
           changed_credential.connection_id::text, changed_credential.expires_at, now()
    FROM changed_credential JOIN connection USING (connection_id)
    WHERE NOT EXISTS (
        SELECT FROM dead_letter d
        WHERE d.kind = 'token.refresh' AND d.tenant_id = changed_credential.tenant_id
            AND d.unique_key = changed_credential.connection_id::text AND d.status = 'pending_review')
),
notice_job AS (
    INSERT INTO job (job_id, kind, tenant_id, provider, group_key, priority, args, unique_key, unique_live)
    SELECT :job_id::uuid, 'event.needs_reauth', changed_credential.tenant_id, connection.provider,
           changed_credential.connection_id::text, 1,
           :job_args::jsonb || jsonb_build_object('event_id', :job_id::uuid, 'occurred_at', now()),
           :unique_key::text, true
    FROM changed_credential JOIN connection USING (connection_id)
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live DO NOTHING
    RETURNING lane_id, run_at
),
lane_update AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM notice_job HAVING count(*) > 0
),
pause_set AS MATERIALIZED (
    SELECT await_grant(changed_credential.tenant_id, connection.provider, connection.account)
    FROM changed_credential JOIN connection USING (connection_id)
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, changed_credential.tenant_id, 'fairlead', 'connection.needs_reauth', connection.provider,
       changed_credential.connection_id, jsonb_build_object('generation', :generation::bigint, 'reason', :reason::text)
FROM changed_credential JOIN connection USING (connection_id) CROSS JOIN pause_set LEFT JOIN lane_update ON true
RETURNING connection_id;
