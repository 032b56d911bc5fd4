-- clock: the server's time, and since when it can be trusted that nothing was lost (R23).
--
-- The marker says so. Where it is missing the caller's `hint` counts, if it has one: since when it knows this
-- server, 1 for a new installation. A run id that is not the marker's is a restart or a fail-over, so what was
-- last written is lost; but not where it is that of another living primary: then the keys have moved here from
-- there.
--
-- `expected` is what the caller thinks the time is. If the server's clock says something else, the call was held
-- up for seconds, or the clock was set. Which of them only the caller can tell, by when it hears of it: so it is
-- told the time, and nothing is done. If it comes again, sure that the clock was set since it heard of the birth
-- `doubted`, and nothing has moved that since: then buckets begin from empty, and no lease is reaped, and no
-- debt from before paid, until every living holder has had time to renew. Where it was put forward so far that
-- keys may have come to their end, who holds a slot is not known any more: that is a loss.
--
-- It may be the caller's own clock that stood still, as that of a paused machine does. So who has `known` the time
-- for a minute bears witness now and then that it is right: no clock was put forward over a moment at which it
-- was right. Who learned it just now bears none: he may have it from a clock that was set and is yet to be found.

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

local function born(birth)
    marker.birth, marker.grants_from = birth, birth + lease_us
end

-- An invalid marker counts as none.
local kept = redis.pcall('GET', KEYS[1])
if type(kept) == 'table' then
    redis.call('DEL', KEYS[1])
    kept = false
end
if kept then
    local latest = now + LONGEST_LEASE_US
    local birth, grants_from, reap_from = 0, 0, 0
    if #kept >= 24 then
        birth, grants_from, reap_from = struct.unpack('<ddd', kept)
    end
    if birth >= 1 and birth <= latest and grants_from >= 0 and grants_from <= latest
        and reap_from >= 0 and reap_from <= latest then
        marker.birth, marker.grants_from, marker.reap_from = birth, grants_from, reap_from
    else
        kept = false
    end
end
local is_off = expected_us > 0 and math.abs(now - expected_us) > CAUTION_US
if is_off and doubted_us == 0 then
    return struct.pack('<dd', now, kept and marker.birth or 0)
end
marker.run = string.sub(ARGV[1], run_at, run_at + 39)
if kept then
    local run = string.sub(kept, 25)
    if run ~= marker.run then
        if run ~= '' and not string.find(ARGV[1], run, run_at, true) then
            born(now)
        end
        write_marker()
    elseif now % 1024 == 0 then  -- it lives on as long as it is used
        redis.call('PEXPIRE', KEYS[1], MARKER_MS)
    end
else
    marker.reap_from = 0
    born(hint_us > 0 and hint_us or now)
    write_marker()
end
if not is_off then
    if known_us >= KNOWN_US and now % 64 == 0 then
        redis.call('SET', string.sub(KEYS[1], 1, -2) .. 's', string.format('%.0f', now), 'PX', WITNESS_MS)
    end
elseif doubted_us == marker.birth then
    local witness = string.sub(KEYS[1], 1, -2) .. 's'
    local told = redis.pcall('GET', witness)
    local right_us = type(told) == 'string' and tonumber(told) or 0
    if right_us <= expected_us + CAUTION_US or right_us > now then
        redis.call('DEL', witness)
        marker.birth, marker.reap_from = now, now + lease_us
        if now - expected_us > KEYS_LAST_US then
            born(now)
        end
        write_marker()
    end
end
