-- credential_settle: the answers of refreshes become the new generations, by compare-and-set.
-- Takes   arrays of one length: connection_ids, generations (the spent ones), epochs, sealeds, key_ids,
--         refreshables, sent_ats, expires/urgent/critical/due offsets in seconds after sent_at,
--         account_ids (NULL: as it was), actors, audit_ids, yields_s (NULL: never; see Settlement),
--         seens (the records that they replace; NULL: whichever is there)
-- Returns connection_id, epoch of those that settled; connection_id, busy of those with a row locked by others: ask
--         again, one open transaction must not hold up the answers of all. What is missing was superseded, or gives way
-- Locks   the credential rows, then the refresh attempts, each in key order, and the lanes of those that had waited for a grant
-- Needs   the spent generation still stands, and was got by an earlier send: after a restore the same number may name
--         another token. Otherwise a reconnect or a faster answer wins, and so may the answer of a later
--         send that has not come yet, for as long as that token may be sent once more. A late answer may heal
--         needs_reauth (the generation was not replaced), never revoked; then the work that waited for a grant goes
--         on. resume_after_grant
WITH answer AS (
    SELECT * FROM unnest(
        :connection_ids::uuid[], :generations::bigint[], :epochs::bigint[], :sealeds::bytea[],
        :key_ids::uuid[], :refreshables::boolean[], :sent_ats::timestamptz[], :expires_in_s::float8[],
        :urgent_in_s::float8[], :critical_in_s::float8[], :due_in_s::float8[], :account_ids::text[],
        :actors::text[], :audit_ids::uuid[], :yields_s::float8[], :seens::bytea[])
    AS a (connection_id, generation, epoch, sealed, key_id, refreshable, sent_at, expires_in_s,
          urgent_in_s, critical_in_s, due_in_s, account_id, actor, audit_id, yields_s, seen)
),
credentials AS MATERIALIZED (
    SELECT connection_id FROM credential WHERE connection_id = ANY(:connection_ids::uuid[])
    ORDER BY connection_id FOR NO KEY UPDATE SKIP LOCKED
),
held AS MATERIALIZED (
    SELECT connection_id FROM refresh_attempt WHERE connection_id IN (SELECT connection_id FROM credentials)
    ORDER BY connection_id FOR UPDATE
),
settled AS (
    UPDATE credential cr SET
        generation = cr.generation + 1, settled_epoch = answer.epoch, state = 'active',
        state_reason = NULL, state_at = CASE WHEN cr.state = 'active' THEN cr.state_at ELSE now() END,
        sealed = answer.sealed, key_id = answer.key_id, refreshable = answer.refreshable,
        expires_at = answer.sent_at + answer.expires_in_s * interval '1 second',
        urgent_at = answer.sent_at + answer.urgent_in_s * interval '1 second',
        critical_at = answer.sent_at + answer.critical_in_s * interval '1 second',
        due_at = answer.sent_at + answer.due_in_s * interval '1 second',
        refreshed_at = answer.sent_at,
        last_sent_at = greatest(cr.last_sent_at, answer.sent_at, (
            SELECT r.started_at FROM refresh_attempt r
            WHERE r.connection_id = answer.connection_id AND r.from_generation = answer.generation))
    FROM answer JOIN credentials USING (connection_id), (SELECT count(*) FROM held) AS first
    WHERE cr.connection_id = answer.connection_id AND cr.generation = answer.generation
        AND (answer.seen IS NULL OR cr.sealed = answer.seen) AND cr.settled_epoch < answer.epoch
        AND cr.state <> 'revoked'
        AND NOT EXISTS (
            SELECT FROM refresh_attempt r
            WHERE r.connection_id = answer.connection_id AND r.from_generation = answer.generation
                AND r.replays > 0 AND r.epoch > answer.epoch
                AND extract(epoch FROM now() - r.sent_at)::float8 <= answer.yields_s)
    RETURNING cr.connection_id, cr.tenant_id, cr.provider, cr.account, cr.generation, cr.state_at, answer.epoch,
              answer.account_id, answer.actor, answer.audit_id
),
ended AS (
    DELETE FROM refresh_attempt USING settled
    WHERE refresh_attempt.connection_id = settled.connection_id AND refresh_attempt.from_generation < settled.generation
),
named AS (
    UPDATE connection SET
        account_id = settled.account_id,
        updated_at = greatest(now(), connection.updated_at + interval '1 microsecond')
    FROM settled
    WHERE connection.connection_id = settled.connection_id AND settled.account_id IS NOT NULL
),
healed AS (
    UPDATE dead_letter SET
        status = 'auto_resolved', resolution = 'manual_refresh', resolved_by = 'fairlead',
        resolution_reason = 'the token was refreshed', resolved_at = now(), action_due_at = NULL
    FROM settled
    WHERE dead_letter.connection_id = settled.connection_id AND dead_letter.status = 'pending_review'
        AND dead_letter.kind = 'token.refresh'
),
told AS (
    INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id, details)
    SELECT settled.audit_id, settled.tenant_id, settled.actor, 'token.refreshed', connection.provider,
           settled.connection_id, jsonb_build_object('generation', settled.generation, 'epoch', settled.epoch)
    FROM settled JOIN connection USING (connection_id)
),
goes_on AS MATERIALIZED (  -- of those that were not active just now
    SELECT resume_after_grant(tenant_id, provider, account) FROM settled WHERE state_at = now()
)
SELECT connection_id, epoch, false AS busy FROM settled CROSS JOIN (SELECT count(*) FROM goes_on) AS done
UNION ALL
SELECT connection_id, NULL, true FROM credential
WHERE (SELECT count(*) FROM credentials) < cardinality(:connection_ids::uuid[])  -- otherwise there is nothing to search
    AND connection_id = ANY(:connection_ids::uuid[]) AND connection_id NOT IN (SELECT connection_id FROM credentials);
