-- forget: delete keys, and have what vouches for them say so in the same step (G12, R23)
-- Takes   KEYS  the marker, then the keys
--         ARGV  the longest lease of a slot in us, the time in us or 0 for the server's
-- Gives   how many keys there were
-- Writes  the marker: whatever is missing is empty from now on, and slots are granted once a lease has passed
-- Needs   the marker as clock.lua keeps it: birth, first grant, no reaping before, run id

local MARKER_MS = 30 * 86400000

local now = tonumber(ARGV[2])
if now == 0 then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- What it said before counts no more, and may be nonsense. Without a run id it takes that of the next run.
redis.call('SET', KEYS[1], struct.pack('<ddd', now, now + tonumber(ARGV[1]), 0), 'PX', MARKER_MS)

local gone = 0
for i = 2, #KEYS do
    gone = gone + redis.call('UNLINK', KEYS[i])
end
return gone
