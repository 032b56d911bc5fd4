-- fast_path: the common case without Lua tables: an admission with free capacity, and the release of a successful call.
-- It saves half of the server's time, and deleting it with its use in gate.lua changes only speed.
--
-- The full path decides the same (tests/contract/test_gate_fast_path.py compares the two). The price is that each rule
-- exists twice. Microseconds of the server per operation, least of six runs on 2
-- cores, with and without it: one bucket 6.7 and 14.9 in batches of 64, 41 and 135 alone; breaker, quota,
-- slot and two buckets with their release 28 and 72 in batches of 64, 142 and 383 alone. So one server admits
-- twice as many calls.
--
-- Each function returns its result. Or it returns nothing: then it changed nothing, and the full path runs.
-- The full path is needed if there are reservations, waiters, expired leases, newer limits or values that
-- cannot be read.

local fences = 0  -- issued in this run, during which the time does not change

-- The lease time of a pool, and after the fields of the full path whether it has a minimum or fencing.
local LEASE_OF_POOL = '<d' .. string.rep('x', 25) .. 'B'

-- The fields of the last plan, since adjacent items mostly share it.
local current_plan
local breaker, quota, pool  -- their places; nil if the plan has none
local first, count          -- the place before its buckets, and their number
local quota_capacity          -- the tenant's slots over all pools
local until_us, until_text, ttl_ms  -- the end of a lease that starts now, and the time to live of its set
local needs_full_path               -- the plan has a feature of the full path only

local function use_plan(blob)
    local flags, at
    flags, count, at = parse('<BB', blob)
    pool, breaker, quota, current_plan, needs_full_path = flags >= 4 and 1 or nil, nil, nil, blob, false
    first, until_us = pool or 0, now + lease_us
    if flags % 2 == 1 then
        breaker, first, at = first + 1, first + 1, at + 48
    end
    if flags % 4 >= 2 then
        quota_capacity, at = parse('<d', blob, at)
        quota, first = first + 1, first + 1
    end
    if pool then
        local pool_lease_us, minimum_or_fenced = parse(LEASE_OF_POOL, blob, at + 8)
        until_us = now + pool_lease_us
        needs_full_path = minimum_or_fenced > 0 or pool_lease_us > LONG_US
    end
    -- As text, because the server formats numbers with 17 digits.
    until_text = string.format('%.0f', until_us)
    ttl_ms = string.format('%.0f', math.ceil((until_us - now) / 1000) + HOUR_MS)
end

-- Return level and rest of a bucket after elapsed_us. It uses whole numbers, none above 2^53 until the bucket is full.
local function refilled(level, rest, elapsed_us, ceiling, rate)
    local missing = ceiling - level
    if missing <= 0 or elapsed_us > missing / rate * MICRO + MICRO then
        return ceiling, 0
    end
    local seconds = floor(elapsed_us / MICRO)
    local micros = elapsed_us - seconds * MICRO
    local high = floor(rate / MICRO)
    local parts = micros * (rate - high * MICRO) + rest
    local whole_units = floor(parts / MICRO)
    level = level + seconds * rate + micros * high + whole_units
    if level >= ceiling then
        return ceiling, 0
    end
    return level, parts - whole_units * MICRO
end

local new_buckets = {}

-- Return whether each bucket has enough units; the new packed buckets are then in `new_buckets`.
local function spend(request)
    local last = first + count
    for i = 1, count do
        local packed = stored[first + i]
        if not packed then
            return false
        end
        local level, rest, since, blocked, sent, reserved, capacity, rate, version = parse(BUCKET, packed)
        local new_version = version_of(first + i, last)
        if reserved > 0 or blocked > now or since > now or since < marker.birth
            or new_version ~= version and is_newer(new_version, version)
            or not (sent <= MOST and capacity >= LEAST_UNITS and capacity <= MOST_UNITS and rate >= 1
            and rate <= MOST_UNITS) then
            return false
        end
        level, rest = refilled(level, rest, now - (since > blocked and since or blocked), capacity, rate)
        local cost = parse('<d', request, 34 + 8 * i)
        if not (level >= cost) then  -- NaN fails this comparison
            return false
        end
        new_buckets[i] = pack(BUCKET, level - cost, rest, now, blocked, sent + cost, 0, capacity, rate, version)
    end
    return true
end

-- Add a lease to the pool and the quota, and return the fence. An empty pool has no expired lease, and its
-- set is a new key.
local function take_slot_fast(holder)
    local pool_value, quota_value = stored[pool], quota and stored[quota]
    if not pool_value or quota_value == false then
        return
    end
    local version, capacity, fence, first_end, waiting, extended_at = parse(POOL, pool_value)
    local new_version = version_of(pool, first + count)
    if waiting > 0 or new_version ~= version and is_newer(new_version, version)
        or not (fence <= MOST and capacity <= MOST_SLOTS) then
        return
    end
    local quota_used, quota_end
    if quota_value then
        quota_used, quota_end = parse(QUOTA, quota_value)
        if not (quota_used >= 0 and quota_used < quota_capacity) then
            return
        end
    end
    local used = call('ZCARD', leases_key)
    local is_current = first_end > now and first_end <= until_us and now <= extended_at + TOUCH_US
    if used >= capacity or not is_current and used > 0 then
        return
    end
    local added = call('ZADD', leases_key, until_text, holder)
    if used == 0 then
        call('PEXPIRE', leases_key, ttl_ms)
    end
    if quota_value then
        if quota_used == 0 or until_us < quota_end then
            quota_end = until_us
        end
        set_place(quota, pack(QUOTA, quota_used + added, quota_end))
    end
    if not is_current then
        set_place(pool, pack(POOL, version, capacity, fence, until_us, 0, now))
    end
    fence = max(fence + 1, now) + fences
    fences = fences + 1
    return fence
end

local MODE = '<d' .. string.rep('x', 24) .. 'd'  -- mode, and since when it is closed again

local function admit_fast(blob, request, holder)
    if blob ~= current_plan then
        use_plan(blob)
    end
    if needs_full_path then
        return
    end
    load_places(first + count)
    if breaker and stored[breaker] then
        local mode, closed_at = parse(MODE, stored[breaker])
        if mode ~= CLOSED or closed_at > 0 then
            return
        end
    end
    if not spend(request) then
        return
    end
    local fence = 0
    if pool then
        fence = take_slot_fast(holder)
        if not fence then
            return
        end
    end
    local result = pack('<BBBBdd', 0, 0, 0, 0, 0, fence)
    for i = 1, count do
        set_place(first + i, new_buckets[i])
        result = result .. sub(new_buckets[i], 33, 40)
    end
    return result
end

local GOOD_END = pack('<Bd', 1, 0)

local NO_BAD = string.rep('\0', 8 * TICKS)
local NO_REPORTER = string.rep('\0', 16)

-- Mode, failures in a row, tick.
local COUNTED = '<dd' .. string.rep('x', 40) .. 'd'

-- Return whether one more good call gives enough calls for the breaker to open by its ratio of failures.
local function may_open(blob, packed)
    local ratio, least = parse('<dd', blob, 11)
    local all, bad = 1, 0
    for part = 0, TICKS - 1 do
        local failed = parse('<d', packed, 65 + 8 * (TICKS + part))
        all, bad = all + parse('<d', packed, 65 + 8 * part) + failed, bad + failed
    end
    return all >= least and bad >= ratio * all
end

-- Return the packed breaker with one more good call; nothing if the full path is needed.
local function count_good_call(blob, packed)
    local mode, in_a_row, tick = parse(COUNTED, packed)
    local elapsed_parts = floor(now / TICK_US) - tick
    if mode ~= CLOSED or in_a_row ~= 0 or not (elapsed_parts >= 0) or sub(packed, 161) ~= NO_REPORTER then
        return
    end
    if elapsed_parts > 0 then
        local numbers = { parse(BREAKER, packed) }
        tick = tick + elapsed_parts
        numbers[8] = tick
        for back = 0, math.min(elapsed_parts, TICKS) - 1 do  -- clear the parts that are older than the window
            local at = 9 + (tick - back) % TICKS
            numbers[at], numbers[at + TICKS] = 0, 0
        end
        packed = pack(BREAKER, unpack(numbers, 1, 22))
    end
    if sub(packed, 65 + 8 * TICKS, 160) ~= NO_BAD and may_open(blob, packed) then
        return
    end
    local at = 65 + 8 * (tick % TICKS)
    return sub(packed, 1, at - 1) .. pack('<d', parse('<d', packed, at) + 1) .. sub(packed, at + 8)
end

local function release_fast(blob, request, holder)
    local _, probe, health, flags = byte(request, 1, 4)
    if probe > 0 or health ~= HEALTHY or flags > 0 then
        return
    end
    if blob ~= current_plan then
        use_plan(blob)
    end
    load_places(first)
    local good
    if breaker then
        good = stored[breaker] and count_good_call(blob, stored[breaker])
        if not good then
            return
        end
    end
    if pool then
        local pool_value, quota_value = stored[pool], quota and stored[quota]
        if not pool_value or quota_value == false then
            return
        end
        local first_end, waiting = parse('<dB', pool_value, 21)
        local quota_used, quota_end = 1, 0
        if quota_value then
            quota_used, quota_end = parse(QUOTA, quota_value)
        end
        if waiting > 0 or not (first_end > now and quota_used >= 1)
            or call('ZREM', leases_key, holder) == 0 then
            return
        end
        if quota_value then
            set_place(quota, pack(QUOTA, quota_used - 1, quota_end))
        end
    end
    if good then
        set_place(breaker, good)
    end
    return GOOD_END
end
