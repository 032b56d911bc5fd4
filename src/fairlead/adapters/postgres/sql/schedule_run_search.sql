-- schedule_run_search: the latest ticks of one schedule, the newest first.
-- Takes   schedule, limit
-- Returns the columns of TakenTick
-- Locks   nothing
-- Needs   the primary key, read backwards
SELECT tick, taken_at, session_id, coalesced, job_id
FROM schedule_run
WHERE schedule = :schedule
ORDER BY tick DESC
LIMIT :limit::bigint
