-- lane_raise_floors: raise the floors, so that claims begin to read at the first ready lane.
-- Takes   nothing
-- Returns nothing of interest
-- Locks   the floors that move; never waits
-- Needs   the function lane_raise_floors
SELECT lane_raise_floors(false)
