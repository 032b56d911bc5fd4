-- maintenance_run_take: become the one process that does a maintenance run now (R4).
-- Takes   sweep (its name), every_s (the least time between two), share (of the time that it may take, up to
--         1): after a long run the next one comes later, by an hour at most
-- Returns name; no row if another process did it recently
-- Locks   its row, if it is due
-- Needs   the primary key. It reads before it writes, because most processes that call it get no run
INSERT INTO maintenance_run AS s (name, last_at)
SELECT :sweep::text, now() WHERE NOT EXISTS (
    SELECT FROM maintenance_run WHERE name = :sweep
        AND last_at > now() - greatest(:every_s::float8, least(cost_s / :share::float8, 3600)) * interval '1 second'
        AND last_at <= now() + interval '1 minute')
ON CONFLICT (name) DO UPDATE SET last_at = now()
WHERE s.last_at <= now() - greatest(:every_s, least(s.cost_s / :share, 3600)) * interval '1 second'
    OR s.last_at > now() + interval '1 minute'  -- the clock was set back
RETURNING name
