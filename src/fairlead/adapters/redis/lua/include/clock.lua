-- clock: the server's time, and the birth: the time since which no data was lost (R23).
--
-- The marker stores the birth. If it is missing, the caller's `hint` is the birth, if there is one: since
-- when the caller knows this server, or 1 for a new installation. A run id other than the marker's means a
-- restart or a failover, which may have lost the latest writes. Unless it is the run id of another living
-- primary: then the keys moved here from there.
--
-- `expected` is the time that the caller expects. If the server's clock differs, the batch was delayed by
-- seconds, or the clock was set. Only the caller can distinguish the two, so the script returns the time and
-- does nothing. The caller repeats the batch with the birth `doubted` if the clock was set since that birth.
-- If the birth is unchanged then, buckets start from empty. No lease expires and no debt is paid until every
-- living holder had time to renew. If the clock was set forward so far that keys may have expired, the
-- holders of slots are unknown: a data loss.
--
-- The caller's own clock may be the one that stopped, as in a suspended machine. So a caller that has expected
-- the right time for a minute (`known`) sometimes stores a witness, which is a time at which the server's clock was right. The
-- clock cannot have been set forward across that time. A caller that read the clock only just now may have read it
-- after it was set.

local CAUTION_US, KEYS_LAST_US = 2000000, 1800000000
local KNOWN_US, WITNESS_MS = 60000000, 3600000
local MARKER_MS = 30 * 86400000
local LONGEST_LEASE_US = 31 * 86400000000

local expected_us, pinned_us, hint_us, lease_us, events, spends, doubted_us, known_us, run_at =
    struct.unpack('<dddddddd', ARGV[1])
local PREFIX = ARGV[2]

local now = pinned_us
if now == 0 then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local marker = {}

local function write_marker()
    local packed = struct.pack('<ddd', marker.birth, marker.grants_from, marker.reap_from) .. marker.run
    redis.call('SET', KEYS[1], packed, 'PX', MARKER_MS)
end

local function set_birth(birth)
    marker.birth, marker.grants_from = birth, birth + lease_us
end

-- An invalid marker counts as missing.
local stored = redis.pcall('GET', KEYS[1])
if type(stored) == 'table' then
    redis.call('DEL', KEYS[1])
    stored = false
end
if stored then
    local latest = now + LONGEST_LEASE_US
    local birth, grants_from, reap_from = 0, 0, 0
    if #stored >= 24 then
        birth, grants_from, reap_from = struct.unpack('<ddd', stored)
    end
    if birth >= 1 and birth <= latest and grants_from >= 0 and grants_from <= latest
        and reap_from >= 0 and reap_from <= latest then
        marker.birth, marker.grants_from, marker.reap_from = birth, grants_from, reap_from
    else
        stored = false
    end
end
local clock_differs = expected_us > 0 and math.abs(now - expected_us) > CAUTION_US
if clock_differs and doubted_us == 0 then
    return struct.pack('<dd', now, stored and marker.birth or 0)
end
marker.run = string.sub(ARGV[1], run_at, run_at + 39)
if stored then
    local run = string.sub(stored, 25)
    if run ~= marker.run then
        if run ~= '' and not string.find(ARGV[1], run, run_at, true) then
            set_birth(now)
        end
        write_marker()
    elseif now % 1024 == 0 then  -- extend its time to live while it is used
        redis.call('PEXPIRE', KEYS[1], MARKER_MS)
    end
else
    marker.reap_from = 0
    set_birth(hint_us > 0 and hint_us or now)
    write_marker()
end
if not clock_differs then
    if known_us >= KNOWN_US and now % 64 == 0 then
        redis.call('SET', string.sub(KEYS[1], 1, -2) .. 's', string.format('%.0f', now), 'PX', WITNESS_MS)
    end
elseif doubted_us == marker.birth then
    local witness = string.sub(KEYS[1], 1, -2) .. 's'
    local witness_value = redis.pcall('GET', witness)
    local witness_us = type(witness_value) == 'string' and tonumber(witness_value) or 0
    if witness_us <= expected_us + CAUTION_US or witness_us > now then
        redis.call('DEL', witness)
        marker.birth, marker.reap_from = now, now + lease_us
        if now - expected_us > KEYS_LAST_US then
            set_birth(now)
        end
        write_marker()
    end
end
