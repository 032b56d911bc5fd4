-- job_complete: jobs are done; a replay that is done closes the dead letter it was made for (R19).
-- Takes   job_ids and lease_ids (no lease is of two jobs), results (an object of lease ids; NULL: there are none)
-- Returns job_id of those accepted; the others were not running under that lease any more
-- Locks   the jobs' rows, and those of the dead letters closed
-- Needs   the primary keys; lane_uncap, which is asked only where caps are set
WITH done AS (
    UPDATE job SET
        state = 'completed', finished_at = now(), result = :results::jsonb -> lease_id::text, crash_count = 0,
        lease_id = NULL, session_id = NULL, settled_lease_id = lease_id,
        unique_live = coalesce(unique_until > now(), false)
    WHERE job_id = ANY(:job_ids::uuid[]) AND lease_id = ANY(:lease_ids::bigint[])  -- which only a running job has
    RETURNING job_id, replay_of, tenant_id, group_key
),
healed AS (
    UPDATE dead_letter SET
        status = 'auto_resolved', resolution = 'redrive', resolved_by = 'fairlead',
        resolution_reason = 'its replay succeeded', resolved_at = now(), action_due_at = NULL
    FROM done
    WHERE dead_letter_id = done.replay_of AND replay_job_id = done.job_id AND status = 'pending_review'
),
places AS MATERIALIZED (
    SELECT lane_uncap(array_agg(tenant_id), array_agg(group_key), 4 * count(*)::integer + 8) FROM done
    WHERE EXISTS (SELECT FROM concurrency_cap) HAVING count(*) > 0
)
SELECT job_id FROM done LEFT JOIN places ON true
