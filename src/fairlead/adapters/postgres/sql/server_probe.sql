-- server_probe: ask whether the other end of the connection is still there.
-- Takes   nothing
-- Returns nothing of interest
-- Locks   nothing
-- Needs   nothing
SELECT 1
