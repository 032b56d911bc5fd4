-- job_settled: read back whether the outcomes of these leases were accepted, to distinguish a lost response
-- from a rejected write.
-- Takes   arrays of one length: job_ids, lease_ids
-- Returns job_id of those with a last accepted outcome of this lease
-- Locks   the rows for a moment: it waits for writes in progress
-- Needs   the primary key
SELECT job.job_id
FROM job JOIN unnest(:job_ids::uuid[], :lease_ids::bigint[]) AS input (job_id, lease_id)
    ON job.job_id = input.job_id AND job.settled_lease_id = input.lease_id
FOR SHARE OF job
