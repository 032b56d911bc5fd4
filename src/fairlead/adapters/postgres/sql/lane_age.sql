-- lane_age: move ready lanes that have waited too long for their turn into a more urgent class.
-- Takes   longest_wait_s
-- Returns one row: lanes
-- Locks   the lanes that move; never waits
-- Needs   the function lane_age
SELECT lane_age(:longest_wait_s::float8) AS lanes
