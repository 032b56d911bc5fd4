-- lane_forget: delete lanes that had no work for a day.
-- Takes   most
-- Returns one row: lanes
-- Locks   what it deletes; never waits
-- Needs   the function lane_forget
SELECT lane_forget(:most::integer) AS lanes
