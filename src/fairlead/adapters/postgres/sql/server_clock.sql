-- server_clock: read the server's clock.
-- Takes   nothing
-- Returns one row: now, the wall clock when the server evaluates it
-- Locks   nothing
-- Needs   nothing
SELECT clock_timestamp() AS now
