-- dead_letter_store: store the dead letter of a job that is discarded. Nothing else creates or reopens an entry
-- of a job that ran.
-- Takes   new_id; final_job: the job's row as this statement leaves it; the reason in four parts; the
--         connection, and when its token expires; due: when the processor reads the entry (NULL: only a person
--         acts)
-- Returns nothing
-- Locks   the entry that it reopens: that of the replayed job, or the open one with the same unique key
-- Needs   to run in the statement that discards the job. A replay that fails reopens its entry, unless that was
--         closed meanwhile. In all other cases a new entry is stored. Spec: R19.
CREATE FUNCTION dead_letter_store(
    new_id uuid, final_job job, why_category text, why_code text, why_reason text, why_details jsonb,
    about_connection uuid, about_token_expires_at timestamptz, due timestamptz
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE replayed_entry dead_letter; open_entry dead_letter;
BEGIN
    IF final_job.state = 'cancelled' THEN  -- the processor reads its entry again
        UPDATE dead_letter SET replay_job_id = NULL, action_due_at = now()
        WHERE dead_letter_id = final_job.replay_of AND replay_job_id = final_job.job_id AND status = 'pending_review';
        RETURN;
    ELSIF final_job.replay_of IS NOT NULL THEN
        SELECT * INTO replayed_entry FROM dead_letter WHERE dead_letter_id = final_job.replay_of FOR UPDATE;
        IF replayed_entry.status = 'pending_review' AND replayed_entry.replay_job_id = final_job.job_id THEN
            open_entry := replayed_entry;
        END IF;
    ELSIF final_job.unique_key IS NOT NULL THEN
        SELECT * INTO open_entry FROM dead_letter
        WHERE kind = final_job.kind AND tenant_id = final_job.tenant_id AND unique_key = final_job.unique_key
            AND status = 'pending_review' AND replay_job_id IS NULL
        ORDER BY first_at LIMIT 1 FOR UPDATE;
        UPDATE dead_letter SET
            lineage_id = final_job.job_id, queue = final_job.queue, provider = final_job.provider,
                group_key = final_job.group_key,
            priority = final_job.priority, args = final_job.args, connection_id = coalesce(about_connection, connection_id),
            first_at = now(), replays = 0, reauth_started_at = NULL, last_notice_at = NULL
        WHERE dead_letter_id = open_entry.dead_letter_id;
    END IF;
    IF open_entry.dead_letter_id IS NOT NULL THEN
        UPDATE dead_letter SET
            job_id = final_job.job_id, category = why_category, code = why_code, reason = why_reason,
            details = why_details, token_expires_at = about_token_expires_at, last_at = now(),
            replay_job_id = NULL, action_due_at = due,
            history = (SELECT jsonb_agg(entry ORDER BY n) FROM (
                SELECT entry, n
                FROM jsonb_array_elements(open_entry.history || final_job.failures) WITH ORDINALITY AS h(entry, n)
                ORDER BY n DESC LIMIT 20) AS latest)
        WHERE dead_letter_id = open_entry.dead_letter_id;
        RETURN;
    END IF;
    INSERT INTO dead_letter (
        dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider, connection_id, group_key, priority,
        category, code, reason, details, history, args, unique_key, token_expires_at, action_due_at)
    VALUES (
        new_id, final_job.job_id, coalesce(replayed_entry.lineage_id, final_job.job_id), final_job.queue,
            final_job.kind, final_job.tenant_id,
        final_job.provider, about_connection, final_job.group_key, final_job.priority, why_category, why_code, why_reason,
        why_details, final_job.failures, final_job.args, final_job.unique_key, about_token_expires_at, due);
END $$;
