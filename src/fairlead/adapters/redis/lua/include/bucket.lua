-- bucket: policy/gate/bucket.py in Lua; the contract suite holds the two together.

local MICRO = 1000000
local REDEEM_US = 5 * MICRO
local NO_BOOKING = '0000000000000000'
local BUCKET = '<ddddddddd'

local function bucket_pack(bucket)
    return struct.pack(BUCKET, bucket.level, bucket.rest, bucket.at, bucket.blocked, bucket.sent, bucket.booked,
        bucket.capacity, bucket.rate, bucket.version)
end

local function bucket_read(kept, limit, full)
    if not kept then
        return { pack = bucket_pack, level = full and limit.capacity or 0, rest = 0, at = marker.birth, blocked = 0,
            sent = 0, booked = 0, capacity = limit.capacity, rate = limit.rate, version = limit.version,
            dirty = true, met = false, name = false, cell = false }
    end
    local level, rest, at, blocked, sent, booked, capacity, rate, version = struct.unpack(BUCKET, kept)
    return { pack = bucket_pack, level = level, rest = rest, at = at, blocked = blocked, sent = sent, booked = booked,
        capacity = capacity, rate = rate, version = version, dirty = false, met = false, name = false, cell = false }
end

local function bucket_key(bucket, part)
    return string.sub(bucket.cell.key, 1, -2) .. 'b:' .. string.sub(bucket.name, 2) .. part
end

local function refill(bucket)
    bucket.met = true
    if bucket.at < marker.birth then
        bucket.level, bucket.rest, bucket.at = math.min(bucket.level, 0), 0, marker.birth
        if bucket.booked > 0 then
            bucket.booked, bucket.dirty = 0, true
            redis.call('DEL', bucket_key(bucket, ':t'))
        end
    end
    if bucket.booked > 0 then
        rare().reap_bookings(bucket, bucket.at - now)
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
    -- elapsed * rate / MICRO in whole numbers: no product here passes 2^53 while the bucket is not full.
    local seconds = math.floor(elapsed_us / MICRO)
    local micros = elapsed_us - seconds * MICRO
    local high = math.floor(bucket.rate / MICRO)
    local parts = micros * (bucket.rate - high * MICRO) + bucket.rest
    local whole = math.floor(parts / MICRO)
    bucket.level = bucket.level + seconds * bucket.rate + micros * high + whole
    bucket.rest = parts - whole * MICRO
    if bucket.level >= ceiling then
        bucket.level, bucket.rest = ceiling, 0
    end
end

local function bucket_at(met, plan, index, full)
    local limit = plan[index]
    local bucket = state_at(met, plan.first_bucket + index, bucket_read, limit, full)
    if not bucket.met then
        refill(bucket)
    end
    -- A newer limit keeps what was spent: less capacity takes from the level, more adds nothing to it.
    if limit.version > bucket.version then
        bucket.level = bucket.level + math.min(0, limit.capacity - bucket.capacity)
        bucket.capacity, bucket.rate, bucket.version = limit.capacity, limit.rate, limit.version
        bucket.dirty = true
    end
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
