-- job_expire: available jobs past their expiry become dead letters; those handed back that were to be cancelled end (R55).
-- Takes   dead_letter_ids (as many as may be moved)
-- Returns one row: moved
-- Locks   the rows moved; never waits for another process
-- Needs   job_expiry_idx; dead_letter_store
WITH due AS MATERIALIZED (
    SELECT job_id FROM job
    WHERE state = 'available' AND expires_at IS NOT NULL AND expires_at <= now()
    ORDER BY expires_at
    LIMIT cardinality(:dead_letter_ids::uuid[]) FOR UPDATE SKIP LOCKED
),
numbered AS MATERIALIZED (
    SELECT job_id, (:dead_letter_ids::uuid[])[row_number() OVER ()] AS dead_letter_id FROM due
),
dead AS (
    UPDATE job SET
        state = CASE WHEN result IS NULL THEN 'discarded' ELSE 'cancelled' END, finished_at = now(),
        unique_live = coalesce(unique_until > now(), false),
        failures = CASE WHEN result IS NOT NULL THEN failures ELSE failures_append(failures, jsonb_build_object(
            'category', 'permanent_request', 'code', 'expired', 'attempt', attempt, 'ran_s', 0,
            'reason', format('not run before its expiry at %s', to_char(expires_at AT TIME ZONE 'UTC',
                             'YYYY-MM-DD"T"HH24:MI:SS"Z"')))) END
    WHERE job_id = ANY(ARRAY(SELECT job_id FROM numbered))
    RETURNING job_id, job AS final
),
buried AS (
    SELECT dead_letter_store(
        numbered.dead_letter_id, dead.final, 'permanent_request', 'expired',
        (dead.final).failures -> -1 ->> 'reason', '{}', NULL, NULL, now())
    FROM dead JOIN numbered USING (job_id)
)
SELECT count(*) AS moved FROM buried
