-- lane_sweep_page: bring some lanes up to date with shares, caps and pauses.
-- Takes   behind (the last lane of the page before), most
-- Returns one row: last (NULL: there are no more), parked
-- Locks   what it mends; never waits
-- Needs   the function lane_sweep_page; the names, lane_find_idx
SELECT last, parked FROM lane_sweep_page(:behind::uuid, :most::integer)
