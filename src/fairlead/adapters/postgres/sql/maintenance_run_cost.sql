-- maintenance_run_cost: record how long a maintenance run took.
-- Takes   sweep (its name)
-- Returns nothing
-- Locks   its row
-- Needs   the primary key; maintenance_run_take, which recorded the start
UPDATE maintenance_run SET cost_s = greatest(0, extract(epoch FROM clock_timestamp() - last_at)) WHERE name = :sweep::text
