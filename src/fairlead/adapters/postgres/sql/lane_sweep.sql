-- lane_sweep: make the invariant hold: an available job's lane is ready, or parked with a wake time.
-- Takes   nothing
-- Gives   one row: opened, parked, deleted
-- Locks   what it mends; never waits
-- Needs   the function lane_sweep (0004_lane_upkeep): the net under everything else
SELECT opened, parked, deleted FROM lane_sweep()
