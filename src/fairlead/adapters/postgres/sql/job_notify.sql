-- job_notify: notify workers that a queue has work.
-- Takes   queue
-- Returns nothing of interest
-- Locks   PostgreSQL's queue of notifications, while it commits: which is why stores debounce this
-- Needs   nothing
SELECT pg_notify('fairlead_job', :queue::text)
