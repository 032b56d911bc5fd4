-- lane_wake_up: make lanes ready that have become due, without waiting for the next claim.
-- Takes   most
-- Returns one row: lanes (that became ready)
-- Locks   those lanes; never waits
-- Needs   the function lane_wake_up
SELECT lane_wake_up(:most::integer) AS lanes
