-- job_start_suspect: mark that a suspect begins to run; from now on a crash counts against it.
-- Takes   job_id, lease_id
-- Returns job_id, or no row if the lease is gone
-- Locks   its row
-- Needs   the primary key
UPDATE job SET started_at = coalesce(started_at, now())
WHERE job_id = :job_id AND lease_id = :lease_id AND state = 'running'
RETURNING job_id
