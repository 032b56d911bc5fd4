-- dead_letter_store: store the dead letter of a job that is discarded: the one way into the dead letters.
-- Takes   new_id, dead: the row of the job as it stands after this statement, the reason in four parts, the
--         connection, when its token expires, due: when the processor looks at the entry (NULL: only a person
--         acts)
-- Returns nothing
-- Locks   the entry that is reopened: that of the replayed job, or the open one of the same unique key
-- Needs   to run in the statement that discards the job. A replay that fails reopens its entry. Everything else
--         makes a new entry, also a replay after its entry was closed. Spec: R19.
CREATE FUNCTION dead_letter_store(
    new_id uuid, dead job, why_category text, why_code text, why_reason text, why_details jsonb,
    about_connection uuid, about_token_expires_at timestamptz, due timestamptz
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE replayed dead_letter; same dead_letter;
BEGIN
    IF dead.state = 'cancelled' THEN  -- its processor looks again
        UPDATE dead_letter SET replay_job_id = NULL, action_due_at = now()
        WHERE dead_letter_id = dead.replay_of AND replay_job_id = dead.job_id AND status = 'pending_review';
        RETURN;
    ELSIF dead.replay_of IS NOT NULL THEN
        SELECT * INTO replayed FROM dead_letter WHERE dead_letter_id = dead.replay_of FOR UPDATE;
        IF replayed.status = 'pending_review' AND replayed.replay_job_id = dead.job_id THEN
            same := replayed;
        END IF;
    ELSIF dead.unique_key IS NOT NULL THEN
        SELECT * INTO same FROM dead_letter
        WHERE kind = dead.kind AND tenant_id = dead.tenant_id AND unique_key = dead.unique_key
            AND status = 'pending_review' AND replay_job_id IS NULL
        ORDER BY first_at LIMIT 1 FOR UPDATE;
        UPDATE dead_letter SET
            lineage_id = dead.job_id, queue = dead.queue, provider = dead.provider, group_key = dead.group_key,
            priority = dead.priority, args = dead.args, connection_id = coalesce(about_connection, connection_id),
            first_at = now(), replays = 0, reauth_started_at = NULL, last_notice_at = NULL
        WHERE dead_letter_id = same.dead_letter_id;
    END IF;
    IF same.dead_letter_id IS NOT NULL THEN
        UPDATE dead_letter SET
            job_id = dead.job_id, category = why_category, code = why_code, reason = why_reason,
            details = why_details, token_expires_at = about_token_expires_at, last_at = now(),
            replay_job_id = NULL, action_due_at = due,
            history = (SELECT jsonb_agg(entry ORDER BY n) FROM (
                SELECT entry, n
                FROM jsonb_array_elements(same.history || dead.failures) WITH ORDINALITY AS h(entry, n)
                ORDER BY n DESC LIMIT 20) AS latest)
        WHERE dead_letter_id = same.dead_letter_id;
        RETURN;
    END IF;
    INSERT INTO dead_letter (
        dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider, connection_id, group_key, priority,
        category, code, reason, details, history, args, unique_key, token_expires_at, action_due_at)
    VALUES (
        new_id, dead.job_id, coalesce(replayed.lineage_id, dead.job_id), dead.queue, dead.kind, dead.tenant_id,
        dead.provider, about_connection, dead.group_key, dead.priority, why_category, why_code, why_reason,
        why_details, dead.failures, dead.args, dead.unique_key, about_token_expires_at, due);
END $$;
