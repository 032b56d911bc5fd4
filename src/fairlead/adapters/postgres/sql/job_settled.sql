-- job_settled: which outcomes were accepted before: tells an answer that was lost from a write that was refused.
-- Takes   arrays of one length: job_ids, lease_ids
-- Returns job_id of those whose last accepted outcome carried this lease
-- Locks   the rows for a moment: it waits for writes that are still under way
-- Needs   the primary key
SELECT job.job_id
FROM job JOIN unnest(:job_ids::uuid[], :lease_ids::bigint[]) AS input (job_id, lease_id)
    ON job.job_id = input.job_id AND job.settled_lease_id = input.lease_id
FOR SHARE OF job
