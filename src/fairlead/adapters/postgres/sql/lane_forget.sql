-- lane_forget: delete lanes that had no work for a day.
-- Takes   most
-- Gives   one row: lanes
-- Locks   what it deletes; never waits
-- Needs   the function lane_forget (0020_sweep_in_pages)
SELECT lane_forget(:most::integer) AS lanes
