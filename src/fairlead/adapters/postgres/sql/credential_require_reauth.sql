-- credential_require_reauth: needs_reauth by compare-and-set, with its dead letter, audit record and notice job;
-- other work of the connection waits.
-- Takes   connection_id, generation, attempt_id (NULL: no refresh may be in flight), reason, audit_id,
--         job_id, job_args (of the notification, once per loss), unique_key
-- Returns connection_id; no row if a winner was there: a loser can never disable it
-- Locks   the credential's row, as settle does first; then the refresh attempt's, the job's lane if that is not ready,
--         and the lanes of its group
-- Needs   the primary keys; the refresh attempt row is the proof that no other owner is at it; await_grant
WITH held AS MATERIALIZED (
    SELECT FROM credential WHERE connection_id = :connection_id FOR NO KEY UPDATE
),
over AS (
    DELETE FROM refresh_attempt USING (SELECT count(*) FROM held) AS first
    WHERE connection_id = :connection_id AND attempt_id = :attempt_id::uuid
    RETURNING connection_id
),
required AS (
    UPDATE credential SET
        state = 'needs_reauth', state_reason = :reason, state_at = now(), due_at = NULL
    WHERE connection_id = :connection_id AND generation = :generation AND state IN ('active', 'unknown')
        AND CASE WHEN :attempt_id::uuid IS NULL
                 THEN NOT EXISTS (SELECT FROM refresh_attempt r WHERE r.connection_id = :connection_id)
                 ELSE EXISTS (SELECT FROM over) END
    RETURNING connection_id, tenant_id, expires_at
),
buried AS (  -- found by a caller or a scan there is no job to die; one that dies is folded into this entry
    INSERT INTO dead_letter (
        dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider, connection_id, group_key,
        priority, category, code, reason, args, unique_key, token_expires_at, action_due_at)
    SELECT :job_id::uuid, :job_id::uuid, :job_id::uuid, 'default', 'token.refresh', required.tenant_id,
           connection.provider, required.connection_id, required.connection_id::text, 1, 'permanent_auth',
           :reason::text, 'only the customer can give a new grant: ' || :reason::text,
           jsonb_build_object('connection_id', required.connection_id, 'generation', :generation::bigint),
           required.connection_id::text, required.expires_at, now()
    FROM required JOIN connection USING (connection_id)
    WHERE NOT EXISTS (
        SELECT FROM dead_letter d
        WHERE d.kind = 'token.refresh' AND d.tenant_id = required.tenant_id
            AND d.unique_key = required.connection_id::text AND d.status = 'pending_review')
),
told AS (
    INSERT INTO job (job_id, kind, tenant_id, provider, group_key, priority, args, unique_key, unique_live)
    SELECT :job_id::uuid, 'event.needs_reauth', required.tenant_id, connection.provider,
           required.connection_id::text, 1,
           :job_args::jsonb || jsonb_build_object('event_id', :job_id::uuid, 'occurred_at', now()),
           :unique_key::text, true
    FROM required JOIN connection USING (connection_id)
    ON CONFLICT (kind, tenant_id, unique_key) WHERE unique_live DO NOTHING
    RETURNING lane_id, run_at
),
lanes AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM told HAVING count(*) > 0
),
waits AS MATERIALIZED (
    SELECT await_grant(required.tenant_id, connection.provider, connection.account)
    FROM required JOIN connection USING (connection_id)
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, required.tenant_id, 'fairlead', 'connection.needs_reauth', connection.provider,
       required.connection_id, jsonb_build_object('generation', :generation::bigint, 'reason', :reason::text)
FROM required JOIN connection USING (connection_id) CROSS JOIN waits LEFT JOIN lanes ON true
RETURNING connection_id;
