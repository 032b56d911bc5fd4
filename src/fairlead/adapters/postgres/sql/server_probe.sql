-- server_probe: check that the server still responds.
-- Takes   nothing
-- Returns nothing of interest
-- Locks   nothing
-- Needs   nothing
SELECT 1
