-- lane_forget: delete lanes that have had no work for a day.
-- Takes   most
-- Returns one row: lanes
-- Locks   the rows that it deletes; never waits
-- Needs   the function lane_forget
SELECT lane_forget(:most::integer) AS lanes
