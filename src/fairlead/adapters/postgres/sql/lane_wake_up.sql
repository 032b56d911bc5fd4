-- lane_wake_up: make lanes ready whose time has come, without waiting for the next claim to do so.
-- Takes   most
-- Returns one row: lanes (that are ready now)
-- Locks   those lanes; never waits
-- Needs   the function lane_wake_up
SELECT lane_wake_up(:most::integer) AS lanes
