-- lane_sweep_page: repair the copies of weights and caps, and the pauses, in one page of lanes.
-- Takes   behind (the last lane of the page before), most
-- Returns one row: last (NULL: there are no more), parked
-- Locks   the lanes that it repairs; never waits
-- Needs   the function lane_sweep_page; lane_find_idx
SELECT last, parked FROM lane_sweep_page(:behind::uuid, :most::integer)
