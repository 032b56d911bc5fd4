-- breaker: policy/limits/breaker.py in Lua; the contract suite compares the two.

--- @include record_formats

-- Stored values are not trusted: an impossible number makes its whole field unknown, as if it were missing.
-- NaN fails each comparison.
local function is_valid(number)
    return number >= 0 and number < MOST
end

local RAMP_FIRST = 2
local SEVERAL = 1  -- instead of one reporter: two processes did not reach the destination
local TICKS_OFF = 17280  -- the clock was set back by more than a day, so the counts are unknown

local function breaker_pack(b)
    return struct.pack(BREAKER, b.mode, b.in_a_row, b.times, b.until_us, b.closed_at, b.ramp_second, b.ramp_used,
        b.tick, b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b.reporter, b.unreached)
end

local function breaker_close(b)
    b.mode, b.in_a_row, b.times, b.until_us, b.closed_at, b.ramp_second, b.ramp_used, b.tick = 0, 0, 0, 0, 0, 0, 0, 0
    b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12] = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    b.reporter, b.unreached = 0, 0
end

local function breaker_read(stored)
    local b = { pack = breaker_pack, dirty = false, name = false }
    if stored and #stored == struct.size(BREAKER) then
        b.mode, b.in_a_row, b.times, b.until_us, b.closed_at, b.ramp_second, b.ramp_used, b.tick,
            b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b.reporter, b.unreached =
            struct.unpack(BREAKER, stored)
        local is_sound = (b.mode == CLOSED or b.mode == OPEN or b.mode == HALF_OPEN)
            and is_valid(b.in_a_row) and is_valid(b.times) and is_valid(b.until_us) and is_valid(b.closed_at) and is_valid(b.ramp_second) and is_valid(b.ramp_used)
            and is_valid(b.reporter) and is_valid(b.unreached) and is_valid(b.tick)
            and b.tick <= now / TICK_US + TICKS_OFF
        for part = 1, 2 * TICKS do
            is_sound = is_sound and is_valid(b[part])
        end
        if is_sound then
            return b
        end
    end
    breaker_close(b)
    return b
end

-- Return how long to wait in us, and whether the call would be the probe. Change only what has expired, such as a ramp.
local function breaker_check(breaker, rule)
    if breaker.mode == CLOSED and breaker.closed_at == 0 then
        return 0
    end
    -- After the clock was set back, move times in the future back to their bounds.
    if breaker.until_us > now + rule.open_max_us or breaker.closed_at > now then
        breaker.until_us = math.min(breaker.until_us, now + rule.open_max_us)
        breaker.closed_at, breaker.dirty = math.min(breaker.closed_at, now), true
    end
    if breaker.mode ~= CLOSED and breaker.closed_at == 0 then
        if now < breaker.until_us then
            local left_us = breaker.until_us - now
            return breaker.mode == OPEN and left_us or math.min(left_us, 1000000)
        end
        return 0, true
    end
    local since_us = math.max(0, now - breaker.closed_at)
    if since_us >= rule.ramp_us then
        breaker.mode, breaker.until_us, breaker.closed_at, breaker.times, breaker.dirty = CLOSED, 0, 0, 0, true
        return 0
    end
    local second = math.floor(since_us / 1000000)
    if breaker.ramp_second ~= second then
        breaker.ramp_second, breaker.ramp_used = second, 0
    end
    if breaker.ramp_used >= RAMP_FIRST * 2 ^ second then
        return 1000000 - since_us % 1000000
    end
    return 0
end

-- Record that the call is sent.
local function breaker_pass(breaker, probe, call_us)
    if probe then
        breaker.mode, breaker.until_us, breaker.dirty = HALF_OPEN, now + call_us, true
    elseif breaker.closed_at > 0 then
        breaker.ramp_used, breaker.dirty = breaker.ramp_used + 1, true
    end
end

local function breaker_open(breaker, rule)
    local times = breaker.times + 1
    local open_us = math.min(rule.open_max_us, rule.open_us * 2 ^ math.min(times - 1, 30))
    breaker_close(breaker)
    breaker.mode, breaker.times, breaker.until_us = OPEN, times, now + math.floor(open_us + 0.5)
    return open_us
end

-- Count a call. Return the us for which it opened the breaker, or 0, and whether it closed the breaker.
-- probe: the end of the probe's time, which identifies it; 0: no probe. reporter: the process that could not connect.
local function breaker_record(breaker, rule, health, probe, reporter)
    if probe > 0 then
        if breaker.mode ~= HALF_OPEN or breaker.until_us ~= probe then
            return 0
        end
        breaker.dirty = true
        if health == HEALTHY or health == BEGUN then
            local is_closing = breaker.closed_at == 0
            breaker.closed_at = is_closing and now or breaker.closed_at
            if health == HEALTHY then
                breaker.mode, breaker.until_us = CLOSED, 0
            end
            return 0, is_closing
        elseif health == UNHEALTHY or health == UNREACHED and breaker.reporter ~= reporter then
            local open_us = breaker_open(breaker, rule)
            breaker.reporter = reporter
            return open_us
        end
        breaker.mode, breaker.until_us, breaker.closed_at = OPEN, now, 0
        return 0
    end
    if breaker.mode ~= CLOSED or (health ~= HEALTHY and health ~= UNHEALTHY and health ~= UNREACHED) then
        return 0
    end
    breaker.dirty = true
    local tick = math.floor(now / TICK_US)
    local elapsed_parts = math.max(0, tick - breaker.tick)
    for back = 0, math.min(TICKS, elapsed_parts) - 1 do
        local part = (tick - back) % TICKS + 1
        breaker[part], breaker[TICKS + part] = 0, 0
    end
    if elapsed_parts >= TICKS then
        breaker.reporter, breaker.unreached = 0, 0
    end
    breaker.tick = math.max(tick, breaker.tick)
    local good, bad = 0, 0
    for index = 1, TICKS do
        good, bad = good + breaker[index], bad + breaker[TICKS + index]
    end
    local part = breaker.tick % TICKS + 1
    if health == HEALTHY then
        breaker[part], breaker.in_a_row, good = breaker[part] + 1, 0, good + 1
        breaker.reporter, breaker.unreached = 0, 0
    else
        local calls = 1
        if health == UNREACHED then
            calls = good == 0 and breaker.unreached + 1 or 0
            if calls > 0 and (breaker.reporter == 0 or breaker.reporter == reporter) then
                breaker.reporter, breaker.unreached, calls = reporter, calls, 0
            elseif calls > 0 then
                breaker.reporter, breaker.unreached = SEVERAL, 0
            end
        end
        breaker[TICKS + part], breaker.in_a_row, bad = breaker[TICKS + part] + calls, breaker.in_a_row + calls, bad + calls
    end
    if breaker.in_a_row >= rule.failures or (good + bad >= rule.least and bad >= rule.ratio * (good + bad)) then
        return breaker_open(breaker, rule)
    end
    return 0
end
