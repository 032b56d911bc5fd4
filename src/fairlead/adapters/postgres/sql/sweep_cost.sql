-- sweep_cost: record how long a sweep took.
-- Takes   sweep (its name)
-- Gives   nothing
-- Locks   its row
-- Needs   the primary key; sweep_take, which wrote when it began
UPDATE sweep SET cost_s = greatest(0, extract(epoch FROM clock_timestamp() - last_at)) WHERE name = :sweep::text
