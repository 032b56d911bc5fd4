-- schedule_run_search: list the latest runs of one schedule, the newest first.
-- Takes   schedule, limit
-- Returns the columns of ScheduleRun
-- Locks   nothing
-- Needs   the primary key, read backwards
SELECT run_at, taken_at, session_id, coalesced, job_id
FROM schedule_run
WHERE schedule = :schedule
ORDER BY run_at DESC
LIMIT :limit::bigint
