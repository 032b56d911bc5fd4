-- bucket: policy/gate/bucket.py in Lua; the contract suite holds the two together.

local MICRO = 1000000
local DAY_MS = 86400000
local REDEEM_US = 5 * MICRO
local NO_BOOKING = string.rep('0', 16)
local MANY = 64

local buckets = {}

local function bucket_read(key, limit, full)
    local kept = redis.call('GET', key)
    local bucket = { key = key }
    if kept then
        bucket.level, bucket.rest, bucket.at, bucket.blocked, bucket.sent, bucket.booked, bucket.capacity,
            bucket.rate, bucket.version = struct.unpack('<ddddddddd', kept)
    else
        bucket.level, bucket.rest, bucket.at, bucket.blocked, bucket.sent, bucket.booked =
            full and limit.capacity or 0, 0, marker.birth, 0, 0, 0
        bucket.capacity, bucket.rate, bucket.version = limit.capacity, limit.rate, limit.version
        bucket.dirty = true
    end
    return bucket
end

-- The clock was set back: what was promised moves with it.
local function move_bookings(bucket, back_us)
    local turns = bucket.key .. ':t'
    local promised = redis.call('ZRANGE', turns, 0, -1, 'WITHSCORES')
    for i = 1, #promised, 2 do
        redis.call('ZADD', turns, tonumber(promised[i + 1]) - back_us, promised[i])
    end
end

-- Turns whose time to be redeemed has passed go back to the level.
local function reap_bookings(bucket)
    local turns = bucket.key .. ':t'
    local late
    repeat
        late = redis.call('ZRANGEBYSCORE', turns, '-inf', '(' .. string.format('%.0f', now), 'LIMIT', 0, MANY)
        for _, turn in ipairs(late) do
            local cost = tonumber(string.sub(turn, 18))
            bucket.level, bucket.booked, bucket.dirty = bucket.level + cost, bucket.booked - cost, true
            redis.call('ZREM', turns, turn)
        end
    until #late < MANY
    if bucket.booked > 0 and redis.call('EXISTS', turns) == 0 then
        bucket.level, bucket.booked, bucket.dirty = bucket.level + bucket.booked, 0, true
    end
end

-- elapsed * rate / MICRO in whole numbers: no product here passes 2^53 while the bucket is not full.
local function credit(bucket, elapsed_us)
    local seconds = math.floor(elapsed_us / MICRO)
    local micros = elapsed_us - seconds * MICRO
    local high = math.floor(bucket.rate / MICRO)
    local low = bucket.rate - high * MICRO
    local parts = micros * low + bucket.rest
    local whole = math.floor(parts / MICRO)
    bucket.level = bucket.level + seconds * bucket.rate + micros * high + whole
    bucket.rest = parts - whole * MICRO
end

local function refill(bucket)
    if bucket.at < marker.birth then
        bucket.level, bucket.rest, bucket.at = math.min(bucket.level, 0), 0, marker.birth
        if bucket.booked > 0 then
            bucket.booked, bucket.dirty = 0, true
            redis.call('DEL', bucket.key .. ':t')
        end
    end
    if bucket.booked > 0 then
        if bucket.at > now then
            move_bookings(bucket, bucket.at - now)
        end
        reap_bookings(bucket)
    end
    if bucket.at > now then
        bucket.blocked = math.max(0, bucket.blocked - (bucket.at - now))
        bucket.at, bucket.dirty = now, true
    end
    local elapsed_us = now - math.max(bucket.at, math.min(bucket.blocked, now))
    local ceiling = bucket.capacity - bucket.booked
    local missing = ceiling - bucket.level
    bucket.at = now
    if missing <= 0 or elapsed_us > missing / bucket.rate * MICRO + MICRO then
        bucket.level, bucket.rest = ceiling, 0
        return
    end
    credit(bucket, elapsed_us)
    if bucket.level >= ceiling then
        bucket.level, bucket.rest = ceiling, 0
    end
end

-- A newer limit keeps what was spent: less capacity takes from the level, more adds nothing to it.
local function put_under(bucket, limit)
    if limit.version > bucket.version then
        bucket.level = bucket.level + math.min(0, limit.capacity - bucket.capacity)
        bucket.capacity, bucket.rate, bucket.version = limit.capacity, limit.rate, limit.version
        bucket.dirty = true
    end
end

local function bucket_at(key, limit, full)
    local bucket = buckets[key]
    if not bucket then
        bucket = bucket_read(key, limit, full)
        buckets[key] = bucket
        refill(bucket)
    end
    put_under(bucket, limit)
    return bucket
end

-- Microseconds until the cost can be spent; -1: never.
local function bucket_wait(bucket, cost)
    if cost > bucket.capacity then
        return -1
    end
    local blocked_us = math.max(0, bucket.blocked - now)
    local short = cost - bucket.level
    if short <= 0 then
        return blocked_us
    end
    return blocked_us + math.ceil(short / bucket.rate * MICRO)
end

local function bucket_settle(bucket, refund)
    bucket.level = math.min(bucket.level + refund, bucket.capacity - bucket.booked)
    bucket.sent = bucket.sent + math.max(0, -refund)
    bucket.dirty = true
end

-- told: 1 what is left, 2 the capacity, 4 the rate.
local function bucket_observe(bucket, told, left, sent_then, capacity, rate)
    if told % 4 >= 2 then
        bucket.level = bucket.level + math.min(0, capacity - bucket.capacity)
        bucket.capacity = capacity
    end
    if told % 8 >= 4 then
        bucket.rate = rate
    end
    bucket.dirty = true
    if told % 2 < 1 then
        return
    end
    local since = math.max(0, bucket.sent - sent_then)
    local seen = math.min(left, bucket.capacity) - since - bucket.booked
    if since == 0 or seen < bucket.level then
        bucket.level, bucket.rest = seen, 0
    end
end

local function bucket_penalise(bucket, until_us)
    bucket.level, bucket.rest = math.min(bucket.level, -bucket.booked), 0
    bucket.blocked = math.max(bucket.blocked, until_us)
    bucket.dirty = true
end

local function turn_name(booking, cost)
    return booking .. ':' .. string.format('%.0f', cost)
end

local function all_booked(plan, met, costs, booking, wait_us)
    local until_us = now + wait_us + REDEEM_US
    for i = 1, #plan do
        local bucket = met[i]
        bucket.level, bucket.booked = bucket.level - costs[i], bucket.booked + costs[i]
        bucket.dirty = true
        local turns = bucket.key .. ':t'
        redis.call('ZADD', turns, until_us, turn_name(booking, costs[i]))
        redis.call('PEXPIRE', turns, math.ceil((until_us - now) / 1000) + 60000)
    end
end

-- Takes the turns out where the buckets promised them; the caller redeems or refunds them.
local function booked_ahead(plan, met, costs, booking)
    local found = #plan > 0 and booking ~= NO_BOOKING
    for i = 1, #plan do
        found = found and met[i].booked > 0 and redis.call('ZSCORE', met[i].key .. ':t', turn_name(booking, costs[i]))
    end
    if not found then
        return false
    end
    for i = 1, #plan do
        redis.call('ZREM', met[i].key .. ':t', turn_name(booking, costs[i]))
    end
    return true
end

local function all_unbooked(plan, met, costs)
    for i = 1, #plan do
        local bucket = met[i]
        bucket.level, bucket.booked = bucket.level + costs[i], bucket.booked - costs[i]
        bucket.dirty = true
    end
end

-- Turns that many took late all fall due together; what came back meanwhile filled no more than the bucket.
local function redeemable_in(bucket, cost)
    local short = cost - bucket.level - bucket.booked
    return short > 0 and math.ceil(short / bucket.rate * MICRO) or 0
end

-- Redeems turns from their time on: true; or how long it is until then, in us; or false: there are none.
-- While the vendor asks to wait they are void, and their cost goes back.
local function redeem(plan, met, costs, booking)
    local early_us = 0
    local blocked = false
    if #plan == 0 or booking == NO_BOOKING then
        return false
    end
    for i = 1, #plan do
        local until_us = met[i].booked > 0 and redis.call('ZSCORE', met[i].key .. ':t', turn_name(booking, costs[i]))
        if not until_us then
            return false
        end
        early_us = math.max(early_us, tonumber(until_us) - REDEEM_US - now, redeemable_in(met[i], costs[i]))
        blocked = blocked or now < met[i].blocked
    end
    if early_us > 0 and not blocked then
        return early_us
    end
    if not booked_ahead(plan, met, costs, booking) then
        return false
    end
    if blocked then
        all_unbooked(plan, met, costs)
    end
    return not blocked
end

local function log_spent(bucket, cost)
    if spends > 0 then
        redis.call('XADD', bucket.key .. ':e', 'MAXLEN', '~', spends, '*', 't', now, 'c', cost)
        redis.call('PEXPIRE', bucket.key .. ':e', 3600000)
    end
end

local function write_buckets()
    for key, bucket in pairs(buckets) do
        if bucket.dirty then
            local full_us = (bucket.capacity - bucket.level) / bucket.rate * MICRO
            local ttl_ms = math.ceil((full_us + math.max(0, bucket.blocked - now)) / 1000)
            local packed = struct.pack('<ddddddddd', bucket.level, bucket.rest, bucket.at, bucket.blocked,
                bucket.sent, bucket.booked, bucket.capacity, bucket.rate, bucket.version)
            redis.call('SET', key, packed, 'PX', math.max(DAY_MS, ttl_ms))
        end
    end
end
