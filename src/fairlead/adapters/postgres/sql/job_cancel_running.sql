-- job_cancel_running: record that handlers ended their jobs without success and without a dead letter.
-- Takes   arrays of one length: job_ids, lease_ids, results (why)
-- Returns job_id of those accepted; the others no longer ran under that lease
-- Locks   the jobs' rows, and those of the dead letters that they replay, which the processor then checks again
-- Needs   the primary keys; lane_uncap, which it calls only if there are caps
WITH input AS (
    SELECT * FROM unnest(:job_ids::uuid[], :lease_ids::bigint[], :results::jsonb[]) AS i (job_id, lease_id, result)
),
cancelled_job AS (
    UPDATE job SET
        state = 'cancelled', finished_at = now(), crash_count = 0, lease_id = NULL, session_id = NULL,
        settled_lease_id = input.lease_id, unique_live = coalesce(unique_until > now(), false),
        result = coalesce(job.result, input.result)
    FROM input
    WHERE job.job_id = input.job_id AND job.lease_id = input.lease_id  -- only a running job has one
    RETURNING job.job_id, job.replay_of, job.tenant_id, job.group_key
),
due_entry AS (
    UPDATE dead_letter SET replay_job_id = NULL, action_due_at = now()
    FROM cancelled_job
    WHERE dead_letter_id = cancelled_job.replay_of AND replay_job_id = cancelled_job.job_id AND status = 'pending_review'
),
lane_update AS MATERIALIZED (
    SELECT lane_uncap(array_agg(tenant_id), array_agg(group_key), 4 * count(*)::integer + 8) FROM cancelled_job
    WHERE EXISTS (SELECT FROM concurrency_cap) HAVING count(*) > 0
)
SELECT job_id FROM cancelled_job LEFT JOIN lane_update ON true
