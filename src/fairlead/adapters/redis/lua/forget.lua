-- forget: delete keys, and record that in their marker in the same step (G12, R23).
-- Takes   KEYS  the marker, then the keys
--         ARGV  the longest lease of a slot in us, the time in us or 0 for the server's
-- Returns how many keys existed
-- Writes  the marker: missing buckets are empty from now on, and slots are granted after the longest lease
-- Needs   the marker as clock.lua writes it: birth, grants_from, reap_from, run id

local MARKER_MS = 30 * 86400000

local now = tonumber(ARGV[2])
if now == 0 then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The old value is replaced unread, because it may be invalid. It has no run id, so the next run sets its own.
redis.call('SET', KEYS[1], struct.pack('<ddd', now, now + tonumber(ARGV[1]), 0), 'PX', MARKER_MS)

local deleted_keys = 0
for i = 2, #KEYS do
    deleted_keys = deleted_keys + redis.call('UNLINK', KEYS[i])
end
return deleted_keys
