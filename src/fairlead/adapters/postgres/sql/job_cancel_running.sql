-- job_cancel_running: handlers ended their jobs without success and without a dead letter.
-- Takes   arrays of one length: job_ids, lease_ids, results (why)
-- Returns job_id of those accepted; the others were not running under that lease any more
-- Locks   the jobs' rows, and those of the dead letters that they replayed: the processor checks them again
-- Needs   the primary keys; lane_uncap, which is asked only where caps are set
WITH input AS (
    SELECT * FROM unnest(:job_ids::uuid[], :lease_ids::bigint[], :results::jsonb[]) AS i (job_id, lease_id, result)
),
done AS (
    UPDATE job SET
        state = 'cancelled', finished_at = now(), crash_count = 0, lease_id = NULL, session_id = NULL,
        settled_lease_id = input.lease_id, unique_live = coalesce(unique_until > now(), false),
        result = coalesce(job.result, input.result)
    FROM input
    WHERE job.job_id = input.job_id AND job.lease_id = input.lease_id  -- which only a running job has
    RETURNING job.job_id, job.replay_of, job.tenant_id, job.group_key
),
freed AS (
    UPDATE dead_letter SET replay_job_id = NULL, action_due_at = now()
    FROM done
    WHERE dead_letter_id = done.replay_of AND replay_job_id = done.job_id AND status = 'pending_review'
),
places AS MATERIALIZED (
    SELECT lane_uncap(array_agg(tenant_id), array_agg(group_key), 4 * count(*)::integer + 8) FROM done
    WHERE EXISTS (SELECT FROM concurrency_cap) HAVING count(*) > 0
)
SELECT job_id FROM done LEFT JOIN places ON true
