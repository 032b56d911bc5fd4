-- job_expire: discard available jobs that have expired, each with its dead letter; cancel those that were
-- released and are to be cancelled (R55).
-- Takes   dead_letter_ids (one for each job that it may end)
-- Returns one row: moved
-- Locks   the rows that it changes; never waits for another process
-- Needs   job_expiry_idx; dead_letter_store
WITH expired_job AS MATERIALIZED (
    SELECT job_id FROM job
    WHERE state = 'available' AND expires_at IS NOT NULL AND expires_at <= now()
    ORDER BY expires_at
    LIMIT cardinality(:dead_letter_ids::uuid[]) FOR UPDATE SKIP LOCKED
),
numbered_job AS MATERIALIZED (
    SELECT job_id, (:dead_letter_ids::uuid[])[row_number() OVER ()] AS dead_letter_id FROM expired_job
),
final_row AS (
    UPDATE job SET
        state = CASE WHEN result IS NULL THEN 'discarded' ELSE 'cancelled' END, finished_at = now(),
        unique_live = coalesce(unique_until > now(), false),
        failures = CASE WHEN result IS NOT NULL THEN failures ELSE failures_append(failures, jsonb_build_object(
            'category', 'permanent_request', 'code', 'expired', 'attempt', attempt, 'ran_s', 0,
            'reason', format('not run before its expiry at %s', to_char(expires_at AT TIME ZONE 'UTC',
                             'YYYY-MM-DD"T"HH24:MI:SS"Z"')))) END
    WHERE job_id = ANY(ARRAY(SELECT job_id FROM numbered_job))
    RETURNING job_id, job AS final
),
dead_letter_write AS (
    SELECT dead_letter_store(
        numbered_job.dead_letter_id, final_row.final, 'permanent_request', 'expired',
        (final_row.final).failures -> -1 ->> 'reason', '{}', NULL, NULL, now())
    FROM final_row JOIN numbered_job USING (job_id)
)
SELECT count(*) AS moved FROM dead_letter_write
