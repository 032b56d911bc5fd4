-- clock: the server's time, and since when it can be trusted that nothing was lost (R23).
--
-- `expected` is what the caller thinks the time is. If the server's clock says something else, it was set,
-- or the call was held up for seconds: either way buckets begin from empty, and no lease is reaped until
-- every living holder has had time to renew.

local CAUTION_US = 2000000

local expected_us, pinned_us, hint_us, lease_us, events, spends = struct.unpack('<dddddd', ARGV[1])
local PREFIX = ARGV[2]

local now = pinned_us
if now == 0 then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local marker = {}

local function write_marker()
    local packed = struct.pack('<ddd', marker.birth, marker.grants_from, marker.reap_from) .. marker.run
    redis.call('SET', KEYS[1], packed, 'PX', 30 * 86400000)
end

local kept = redis.call('GET', KEYS[1])
if kept then
    local at
    marker.birth, marker.grants_from, marker.reap_from, at = struct.unpack('<ddd', kept)
    marker.run = string.sub(kept, at)
else
    marker.birth, marker.grants_from, marker.reap_from, marker.run = now, now + lease_us, 0, ''
    if hint_us > 0 then
        marker.birth, marker.grants_from = hint_us, 0
    end
    write_marker()
end
if expected_us > 0 and math.abs(now - expected_us) > CAUTION_US then
    marker.birth, marker.reap_from = now, now + lease_us
    write_marker()
end
