-- job_complete: mark jobs completed; a completed replay closes its dead letter (R19).
-- Takes   job_ids and lease_ids (no two jobs have one lease), results (an object by lease id; NULL: none)
-- Returns job_id of those accepted; the others no longer ran under that lease
-- Locks   the jobs' rows, and those of the dead letters that it closes
-- Needs   the primary keys; lane_uncap, which it calls only if there are caps
WITH completed_job AS (
    UPDATE job SET
        state = 'completed', finished_at = now(), result = :results::jsonb -> lease_id::text, crash_count = 0,
        lease_id = NULL, session_id = NULL, settled_lease_id = lease_id,
        unique_live = coalesce(unique_until > now(), false)
    WHERE job_id = ANY(:job_ids::uuid[]) AND lease_id = ANY(:lease_ids::bigint[])  -- only a running job has one
    RETURNING job_id, replay_of, tenant_id, group_key
),
resolved_entry AS (
    UPDATE dead_letter SET
        status = 'auto_resolved', resolution = 'redrive', resolved_by = 'fairlead',
        resolution_reason = 'its replay succeeded', resolved_at = now(), action_due_at = NULL
    FROM completed_job
    WHERE dead_letter_id = completed_job.replay_of AND replay_job_id = completed_job.job_id AND status = 'pending_review'
),
lane_update AS MATERIALIZED (
    SELECT lane_uncap(array_agg(tenant_id), array_agg(group_key), 4 * count(*)::integer + 8) FROM completed_job
    WHERE EXISTS (SELECT FROM concurrency_cap) HAVING count(*) > 0
)
SELECT job_id FROM completed_job LEFT JOIN lane_update ON true
