-- lane_sweep_lost: make ready, or park with a wake time, what nobody would have looked at again.
-- Takes   nothing
-- Gives   one row: opened
-- Locks   what it mends; never waits
-- Needs   the function lane_sweep_lost (0020_sweep_in_pages): the net under everything else
SELECT lane_sweep_lost() AS opened
