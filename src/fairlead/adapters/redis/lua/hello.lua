-- hello: a process meets a server: is what it knows still there? (R23)
-- Takes   KEYS  the marker
--         ARGV  run id of the server, 1 if nothing was ever granted (a new installation), longest lease in us,
--               the time in us or 0 for the server's
-- Gives   the server's time, the birth of what it knows, the first time it may grant a slot, all as text
-- Writes  the marker: a run id that differs is a restart or a fail-over, so what was last written is lost
-- Needs   nothing

local now = tonumber(ARGV[4])
if now == 0 then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local run, new, lease_us = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local birth, grants_from, reap_from, kept_run = now, now + lease_us, 0, nil
local kept = redis.call('GET', KEYS[1])
if kept then
    local at
    birth, grants_from, reap_from, at = struct.unpack('<ddd', kept)
    kept_run = string.sub(kept, at)
    if kept_run ~= '' and kept_run ~= run then
        birth, grants_from = now, now + lease_us
    end
elseif new then
    birth, grants_from = 0, 0
end
if kept_run ~= run then
    redis.call('SET', KEYS[1], struct.pack('<ddd', birth, grants_from, reap_from) .. run, 'PX', 30 * 86400000)
end
return { string.format('%.0f', now), string.format('%.0f', birth), string.format('%.0f', grants_from) }
