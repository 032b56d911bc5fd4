-- job_present: read back which of these jobs are stored, after a commit in doubt.
-- Takes   job_ids
-- Returns job_id and follows (it waits for the end of a run with its key) of those that exist
-- Locks   nothing
-- Needs   the primary key. It does not see a job before its commit: storing that one again
--         waits for the commit, and then breaks the primary key
SELECT job_id, follow_at IS NOT NULL AS follows FROM job WHERE job_id = ANY(:job_ids::uuid[])
