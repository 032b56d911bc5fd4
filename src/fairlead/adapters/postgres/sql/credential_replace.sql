-- credential_replace: store a new grant for an existing connection, which keeps its id.
-- Takes   connection_id, tenant_id (its owner), generation (the new one), the grant's columns, offsets in
--         seconds, state, state_reason, actor, audit_id
-- Returns the connection_id; no row if another writer was faster
-- Locks   the credential's row, and the lanes that wait for the grant. A refresh in flight loses, because its
--         settlement finds a newer generation
-- Needs   the primary keys; resume_after_grant. The version rises even if the clock does not, as in
--         connection_configure
WITH new_credential AS (
    UPDATE credential SET
        generation = :generation, settled_epoch = 0, state = :state, state_reason = :state_reason,
        state_at = now(), sealed = :sealed, key_id = :key_id, refreshable = :refreshable,
        expires_at = now() + :expires_in_s::float8 * interval '1 second',
        urgent_at = now() + :urgent_in_s::float8 * interval '1 second',
        critical_at = now() + :critical_in_s::float8 * interval '1 second',
        due_at = now() + :due_in_s::float8 * interval '1 second',
        refreshed_at = NULL, granted_at = now()
    WHERE connection_id = :connection_id AND tenant_id = :tenant_id AND generation = :generation::bigint - 1
    RETURNING connection_id, tenant_id
),
changed_connection AS (
    UPDATE connection SET
        variant = :variant, account_id = coalesce(:account_id, connection.account_id),
        client_id = :client_id, endpoint = :endpoint, settings = :settings,
        updated_at = greatest(now(), connection.updated_at + interval '1 microsecond')
    FROM new_credential WHERE connection.connection_id = new_credential.connection_id
    RETURNING connection.provider, connection.account
),
deleted_attempt AS (
    DELETE FROM refresh_attempt USING new_credential WHERE refresh_attempt.connection_id = new_credential.connection_id
),
resolved_entry AS (
    UPDATE dead_letter SET
        status = 'auto_resolved', resolution = 'reauthorize', resolved_by = :actor,
        resolution_reason = 'the connection was given a new grant', resolved_at = now(), action_due_at = NULL
    FROM new_credential
    WHERE :state::text = 'active' AND dead_letter.connection_id = new_credential.connection_id
        AND dead_letter.tenant_id = new_credential.tenant_id
        AND dead_letter.status = 'pending_review' AND dead_letter.kind = 'token.refresh'
),
due_entry AS (  -- work that failed for lack of the grant is retried; other work failed for another cause
    UPDATE dead_letter SET action_due_at = now()
    FROM new_credential
    WHERE :state::text = 'active' AND dead_letter.connection_id = new_credential.connection_id
        AND dead_letter.tenant_id = new_credential.tenant_id
        AND dead_letter.status = 'pending_review' AND dead_letter.category = 'permanent_auth'
        AND dead_letter.kind <> 'token.refresh' AND dead_letter.replay_job_id IS NULL
),
resumption AS MATERIALIZED (
    SELECT CASE WHEN :state::text = 'active'
        THEN resume_after_grant(new_credential.tenant_id, changed_connection.provider,
            changed_connection.account) END FROM new_credential, changed_connection
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, new_credential.tenant_id, :actor::text, 'connection.reauthorised', changed_connection.provider,
       new_credential.connection_id, jsonb_build_object('generation', :generation::bigint)
FROM new_credential, changed_connection, resumption
RETURNING connection_id;
