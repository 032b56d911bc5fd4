-- breaker: policy/gate/breaker.py in Lua; the contract suite holds the two together.

local CLOSED, OPEN, HALF_OPEN = 0, 1, 2
local HEALTHY, UNHEALTHY = 1, 2
local TICK_US, TICKS = 5000000, 6
local RAMP_FIRST = 2
local NUMBERS = '<' .. string.rep('d', 8 + 2 * TICKS)

local breakers = {}

local function close(breaker)
    breaker.mode, breaker.in_a_row, breaker.times, breaker.until_us = CLOSED, 0, 0, 0
    breaker.closed_at, breaker.ramp_second, breaker.ramp_used, breaker.tick = 0, 0, 0, 0
    for part = 1, TICKS do
        breaker.good[part], breaker.bad[part] = 0, 0
    end
end

local function breaker_at(key)
    local breaker = breakers[key]
    if breaker then
        return breaker
    end
    breaker = { key = key, good = {}, bad = {} }
    local kept = redis.call('GET', key)
    if kept then
        local told = { struct.unpack(NUMBERS, kept) }
        breaker.mode, breaker.in_a_row, breaker.times, breaker.until_us = told[1], told[2], told[3], told[4]
        breaker.closed_at, breaker.ramp_second, breaker.ramp_used, breaker.tick = told[5], told[6], told[7], told[8]
        for part = 1, TICKS do
            breaker.good[part], breaker.bad[part] = told[8 + part], told[8 + TICKS + part]
        end
    else
        close(breaker)
    end
    breakers[key] = breaker
    return breaker
end

-- How long to wait, and whether the call would be the probe. Changes nothing but the end of a ramp.
local function breaker_judge(breaker, rule)
    if breaker.mode ~= CLOSED then
        if now < breaker.until_us then
            local left_us = breaker.until_us - now
            return breaker.mode == OPEN and left_us or math.min(left_us, 1000000)
        end
        return 0, true
    end
    if breaker.closed_at == 0 then
        return 0
    end
    local since_us = math.max(0, now - breaker.closed_at)
    if since_us >= rule.ramp_us then
        breaker.closed_at, breaker.times, breaker.dirty = 0, 0, true
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

-- The call is sent.
local function breaker_pass(breaker, probe, call_us)
    if probe then
        breaker.mode, breaker.until_us, breaker.dirty = HALF_OPEN, now + call_us, true
    elseif breaker.closed_at > 0 then
        breaker.ramp_used, breaker.dirty = breaker.ramp_used + 1, true
    end
end

local function open(breaker, rule)
    local times = breaker.times + 1
    local open_us = math.min(rule.open_max_us, rule.open_us * 2 ^ math.min(times - 1, 30))
    close(breaker)
    breaker.mode, breaker.times, breaker.until_us = OPEN, times, now + math.floor(open_us + 0.5)
    return open_us
end

local function count(breaker, health)
    local tick = math.floor(now / TICK_US)
    for passed = 0, math.min(TICKS, math.max(0, tick - breaker.tick)) - 1 do
        local part = (tick - passed) % TICKS + 1
        breaker.good[part], breaker.bad[part] = 0, 0
    end
    breaker.tick = math.max(tick, breaker.tick)
    local part = breaker.tick % TICKS + 1
    if health == HEALTHY then
        breaker.good[part], breaker.in_a_row = breaker.good[part] + 1, 0
    else
        breaker.bad[part], breaker.in_a_row = breaker.bad[part] + 1, breaker.in_a_row + 1
    end
end

local function is_down(breaker, rule)
    local good, bad = 0, 0
    for part = 1, TICKS do
        good, bad = good + breaker.good[part], bad + breaker.bad[part]
    end
    return breaker.in_a_row >= rule.failures or (good + bad >= rule.least and bad >= rule.ratio * (good + bad))
end

-- Counts a call that ended; gives for how long the breaker opened by it, or 0.
local function breaker_record(breaker, rule, health, probe)
    if probe then
        if breaker.mode ~= HALF_OPEN then
            return 0
        end
        breaker.dirty = true
        if health == HEALTHY then
            local times = breaker.times
            close(breaker)
            breaker.closed_at, breaker.times = now, times
            return 0
        elseif health == UNHEALTHY then
            return open(breaker, rule)
        end
        breaker.mode, breaker.until_us = OPEN, now
        return 0
    end
    if breaker.mode ~= CLOSED or (health ~= HEALTHY and health ~= UNHEALTHY) then
        return 0
    end
    breaker.dirty = true
    count(breaker, health)
    if is_down(breaker, rule) then
        return open(breaker, rule)
    end
    return 0
end

local function write_breakers()
    for key, breaker in pairs(breakers) do
        if breaker.dirty then
            local told = { breaker.mode, breaker.in_a_row, breaker.times, breaker.until_us,
                breaker.closed_at, breaker.ramp_second, breaker.ramp_used, breaker.tick }
            for part = 1, TICKS do
                told[8 + part], told[8 + TICKS + part] = breaker.good[part], breaker.bad[part]
            end
            local ttl_ms = DAY_MS + math.ceil(math.max(0, breaker.until_us - now) / 1000)
            redis.call('SET', key, struct.pack(NUMBERS, unpack(told)), 'PX', ttl_ms)
        end
    end
end
