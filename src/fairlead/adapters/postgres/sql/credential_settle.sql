-- credential_settle: store the responses of refreshes as new generations, by compare-and-set.
-- Takes   arrays of one length: connection_ids, generations (the spent ones), epochs, sealeds, key_ids,
--         refreshables, sent_ats, expires/urgent/critical/due offsets in seconds after sent_at, account_ids
--         (NULL: unchanged), actors, audit_ids, yields_s (NULL: never; see Settlement), seens (the sealed
--         records that these replace; NULL: any)
-- Returns connection_id, epoch of those that settled. connection_id, busy of those with a row that another
--         transaction has locked: repeat these, so that one open transaction does not delay all others. A
--         missing one was superseded, or yields to a later send
-- Locks   the credentials' rows, then the refresh attempts', each in key order, and the lanes that wait for a
--         grant
-- Needs   the spent generation to be the current one, stored by an earlier send: after a restore the same
--         number may name another token. Otherwise a reconnect or a faster response has won. A response also
--         yields to a later send without a response yet, while that token may be sent once more. A late
--         response may end needs_reauth, because the generation was not replaced, but never revoked; then the
--         connection's work resumes (resume_after_grant)
WITH response AS (
    SELECT * FROM unnest(
        :connection_ids::uuid[], :generations::bigint[], :epochs::bigint[], :sealeds::bytea[],
        :key_ids::uuid[], :refreshables::boolean[], :sent_ats::timestamptz[], :expires_in_s::float8[],
        :urgent_in_s::float8[], :critical_in_s::float8[], :due_in_s::float8[], :account_ids::text[],
        :actors::text[], :audit_ids::uuid[], :yields_s::float8[], :seens::bytea[])
    AS response (connection_id, generation, epoch, sealed, key_id, refreshable, sent_at, expires_in_s,
          urgent_in_s, critical_in_s, due_in_s, account_id, actor, audit_id, yields_s, seen)
),
locked_credential AS MATERIALIZED (
    SELECT connection_id FROM credential WHERE connection_id = ANY(:connection_ids::uuid[])
    ORDER BY connection_id FOR NO KEY UPDATE SKIP LOCKED
),
locked_attempt AS MATERIALIZED (
    SELECT connection_id FROM refresh_attempt WHERE connection_id IN (SELECT connection_id FROM locked_credential)
    ORDER BY connection_id FOR UPDATE
),
new_generation AS (
    UPDATE credential cr SET
        generation = cr.generation + 1, settled_epoch = response.epoch, state = 'active',
        state_reason = NULL, state_at = CASE WHEN cr.state = 'active' THEN cr.state_at ELSE now() END,
        sealed = response.sealed, key_id = response.key_id, refreshable = response.refreshable,
        expires_at = response.sent_at + response.expires_in_s * interval '1 second',
        urgent_at = response.sent_at + response.urgent_in_s * interval '1 second',
        critical_at = response.sent_at + response.critical_in_s * interval '1 second',
        due_at = response.sent_at + response.due_in_s * interval '1 second',
        refreshed_at = response.sent_at,
        last_sent_at = greatest(cr.last_sent_at, response.sent_at, (
            SELECT r.started_at FROM refresh_attempt r
            WHERE r.connection_id = response.connection_id AND r.from_generation = response.generation))
    FROM response JOIN locked_credential USING (connection_id), (SELECT count(*) FROM locked_attempt) AS lock_count
    WHERE cr.connection_id = response.connection_id AND cr.generation = response.generation
        AND (response.seen IS NULL OR cr.sealed = response.seen) AND cr.settled_epoch < response.epoch
        AND cr.state <> 'revoked'
        AND NOT EXISTS (
            SELECT FROM refresh_attempt r
            WHERE r.connection_id = response.connection_id AND r.from_generation = response.generation
                AND r.replays > 0 AND r.epoch > response.epoch
                AND extract(epoch FROM now() - r.sent_at)::float8 <= response.yields_s)
    RETURNING cr.connection_id, cr.tenant_id, cr.provider, cr.account, cr.generation, cr.state_at, response.epoch,
              response.account_id, response.actor, response.audit_id
),
deleted_attempt AS (
    DELETE FROM refresh_attempt USING new_generation
    WHERE refresh_attempt.connection_id = new_generation.connection_id
        AND refresh_attempt.from_generation < new_generation.generation
),
changed_connection AS (
    UPDATE connection SET
        account_id = new_generation.account_id,
        updated_at = greatest(now(), connection.updated_at + interval '1 microsecond')
    FROM new_generation
    WHERE connection.connection_id = new_generation.connection_id AND new_generation.account_id IS NOT NULL
),
resolved_entry AS (
    UPDATE dead_letter SET
        status = 'auto_resolved', resolution = 'manual_refresh', resolved_by = 'fairlead',
        resolution_reason = 'the token was refreshed', resolved_at = now(), action_due_at = NULL
    FROM new_generation
    WHERE dead_letter.connection_id = new_generation.connection_id AND dead_letter.status = 'pending_review'
        AND dead_letter.kind = 'token.refresh'
),
audit_record AS (
    INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
    SELECT new_generation.audit_id, new_generation.tenant_id, new_generation.actor, 'token.refreshed', connection.provider,
           new_generation.connection_id, jsonb_build_object('generation', new_generation.generation, 'epoch',
               new_generation.epoch)
    FROM new_generation JOIN connection USING (connection_id)
),
resumption AS MATERIALIZED (  -- of those that were not active before
    SELECT resume_after_grant(tenant_id, provider, account) FROM new_generation WHERE state_at = now()
)
SELECT connection_id, epoch, false AS busy FROM new_generation CROSS
    JOIN (SELECT count(*) FROM resumption) AS resumption_count
UNION ALL
SELECT connection_id, NULL, true FROM credential
WHERE (SELECT count(*) FROM locked_credential) < cardinality(:connection_ids::uuid[])  -- else none is busy
    AND connection_id = ANY(:connection_ids::uuid[]) AND connection_id NOT IN (SELECT connection_id FROM locked_credential);
