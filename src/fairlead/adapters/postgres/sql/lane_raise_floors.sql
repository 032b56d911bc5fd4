-- lane_raise_floors: have claims begin to read where the ready lanes are.
-- Takes   nothing
-- Returns nothing of interest
-- Locks   the floors that move; never waits
-- Needs   the function lane_raise_floors
SELECT lane_raise_floors(false)
