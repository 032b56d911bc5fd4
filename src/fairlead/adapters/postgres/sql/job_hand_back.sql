-- job_hand_back: release the jobs of claims with responses that are lost for good.
-- Takes   arrays of one length: session_ids, lease_seeds (of those claims)
-- Returns job_id of those released; their attempts are restored
-- Locks   their rows, and their lanes if these are not ready
-- Needs   job_running_since_idx; lane_touch
WITH released_job AS (
    UPDATE job SET
        state = 'available', attempt = greatest(attempt - 1, 0), lease_id = NULL, session_id = NULL, started_at = NULL
    FROM unnest(:session_ids::uuid[], :lease_seeds::bigint[]) AS lost_claim (session_id, lease_seed)
    WHERE job.session_id = lost_claim.session_id AND job.state = 'running'
        AND job.lease_id = uuid_hash_extended(job.job_id, lost_claim.lease_seed) & 9223372036854775807
    RETURNING job.job_id, job.lane_id, job.run_at, job.crash_count
),
lane_update AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM released_job WHERE crash_count = 0 HAVING count(*) > 0
)
SELECT released_job.job_id FROM released_job LEFT JOIN lane_update ON true
