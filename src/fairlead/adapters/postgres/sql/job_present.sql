-- job_present: return which of these jobs are stored: reads back an enqueue with its commit in doubt.
-- Takes   job_ids
-- Returns job_id, follows (it waits for the end of a run of its key), of those that are there
-- Locks   nothing
-- Needs   the primary key. One that is still being committed elsewhere is not seen: storing it again waits for
--         that commit, and then breaks the primary key
SELECT job_id, follow_at IS NOT NULL AS follows FROM job WHERE job_id = ANY(:job_ids::uuid[])
