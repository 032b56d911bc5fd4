-- job_notify: notify workers that a queue has work.
-- Takes   queue
-- Returns nothing of interest
-- Locks   PostgreSQL's notification queue during the commit, so stores debounce this
-- Needs   nothing
SELECT pg_notify('fairlead_job', :queue::text)
