-- credential_replace: a new grant for a connection that is there (reconnect in place keeps its id).
-- Takes   connection_id, tenant_id (its owner), generation (the new one), the grant's columns, offsets in
--         seconds, state, state_reason, actor, audit_id
-- Returns the connection_id; no row if another writer was faster
-- Locks   the credential's row; whatever refresh was in flight has lost (its settle finds a newer generation).
--         And the lanes that waited for the grant
-- Needs   the primary keys; resume_after_grant. The version moves on even where the clock does not, as in
--         connection_configure
WITH moved AS (
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
described AS (
    UPDATE connection SET
        variant = :variant, account_id = coalesce(:account_id, connection.account_id),
        client_id = :client_id, endpoint = :endpoint, settings = :settings,
        updated_at = greatest(now(), connection.updated_at + interval '1 microsecond')
    FROM moved WHERE connection.connection_id = moved.connection_id
    RETURNING connection.provider, connection.account
),
ended AS (
    DELETE FROM refresh_attempt USING moved WHERE refresh_attempt.connection_id = moved.connection_id
),
healed AS (
    UPDATE dead_letter SET
        status = 'auto_resolved', resolution = 'reauthorize', resolved_by = :actor,
        resolution_reason = 'the connection was given a new grant', resolved_at = now(), action_due_at = NULL
    FROM moved
    WHERE :state::text = 'active' AND dead_letter.connection_id = moved.connection_id
        AND dead_letter.tenant_id = moved.tenant_id
        AND dead_letter.status = 'pending_review' AND dead_letter.kind = 'token.refresh'
),
unblocked AS (  -- dead_letter.process retries work that lacked the grant; other work failed for another cause
    UPDATE dead_letter SET action_due_at = now()
    FROM moved
    WHERE :state::text = 'active' AND dead_letter.connection_id = moved.connection_id
        AND dead_letter.tenant_id = moved.tenant_id
        AND dead_letter.status = 'pending_review' AND dead_letter.category = 'permanent_auth'
        AND dead_letter.kind <> 'token.refresh' AND dead_letter.replay_job_id IS NULL
),
goes_on AS MATERIALIZED (
    SELECT CASE WHEN :state::text = 'active'
        THEN resume_after_grant(moved.tenant_id, described.provider, described.account) END FROM moved, described
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
SELECT :audit_id::uuid, moved.tenant_id, :actor::text, 'connection.reauthorised', described.provider,
       moved.connection_id, jsonb_build_object('generation', :generation::bigint)
FROM moved, described, goes_on
RETURNING connection_id;
