-- server_clock: read the server's clock.
-- Takes   nothing
-- Returns one row: now, as the server's wall clock stands while it answers
-- Locks   nothing
-- Needs   nothing
SELECT clock_timestamp() AS now
