-- bucket: policy/limits/bucket.py in Lua; the contract suite compares the two.

local REDEEM_US = 5 * MICRO
local LONGEST_HOLD_US = 90000 * MICRO
local NO_RESERVATION = '0000000000000000'

local function bucket_pack(bucket)
    return struct.pack(BUCKET, bucket.level, bucket.rest, bucket.at, bucket.blocked, bucket.sent, bucket.reserved,
        bucket.capacity, bucket.rate, bucket.version)
end

-- Return the bucket. A missing one gets its initial state; one that cannot be read is empty from now on
-- (R23).
local function bucket_read(stored, limit, new_version, full)
    local bucket = { pack = bucket_pack, dirty = false, is_refilled = false, name = false }
    if stored and #stored == struct.size(BUCKET) then
        local level, rest, at, blocked, sent, reserved, capacity, rate, version = struct.unpack(BUCKET, stored)
        if level >= -MOST and level <= MOST and rest >= 0 and rest < MICRO and is_valid(at) and is_valid(blocked)
            and is_valid(sent) and is_valid(reserved) and level + reserved <= capacity and capacity >= LEAST_UNITS
            and capacity <= MOST_UNITS and rate >= 1 and rate <= MOST_UNITS and is_valid(version) then
            bucket.level, bucket.rest, bucket.at, bucket.blocked, bucket.sent, bucket.reserved, bucket.capacity,
                bucket.rate, bucket.version = level, rest, at, blocked, sent, reserved, capacity, rate, version
            return bucket
        end
    end
    local damaged = stored or repaired_cell == cell_key
    bucket.level, bucket.rest = full and not damaged and limit.capacity or 0, 0
    bucket.at = damaged and now or marker.birth
    bucket.blocked, bucket.sent, bucket.reserved, bucket.dirty = 0, 0, 0, true
    bucket.capacity, bucket.rate, bucket.version = limit.capacity, limit.rate, new_version
    return bucket
end

local function bucket_key(bucket, part)
    return string.sub(cell_key, 1, -2) .. 'b:' .. string.sub(bucket.name, 2) .. part
end

local function refill(bucket)
    bucket.is_refilled = true
    if bucket.at < marker.birth then  -- only an unpaid debt remains
        -- The size of a clock change does not show how much time passed, so no debt is paid before reap_from.
        local from = math.max(bucket.at, math.min(bucket.blocked, marker.birth), marker.reap_from)
        bucket.level, bucket.rest = refilled(bucket.level + bucket.reserved, bucket.rest,
            math.max(0, marker.birth - from), bucket.capacity, bucket.rate)
        if bucket.level >= 0 then
            bucket.level, bucket.rest = 0, 0
        end
        bucket.at = marker.birth
        if bucket.reserved > 0 then
            bucket.reserved, bucket.dirty = 0, true
            redis.call('DEL', bucket_key(bucket, ':t'))
        end
    end
    if bucket.reserved > 0 then
        lazy().expire_reservations(bucket, bucket.at - now)
    end
    if bucket.at > now then
        bucket.blocked = math.max(0, bucket.blocked - (bucket.at - now))
        bucket.at, bucket.dirty = now, true
    end
    if bucket.blocked > now + LONGEST_HOLD_US then
        bucket.blocked = 0  -- longer than any wait that a provider may request
    end
    local elapsed_us = now - math.max(bucket.at, math.min(bucket.blocked, now))
    bucket.at = now
    local ceiling = bucket.capacity - bucket.reserved
    bucket.level, bucket.rest = refilled(bucket.level, bucket.rest, elapsed_us, ceiling, bucket.rate)
end

local function bucket_at(plan, index, full)
    local limit = plan[index]
    local bucket = state_at(plan.first_bucket + index, plan.last, bucket_read, limit, full)
    if not bucket.is_refilled then
        refill(bucket)
    end
    -- A newer limit preserves what was spent: less capacity reduces the level, more does not raise it.
    local version = version_of(plan.first_bucket + index, plan.last)
    if is_newer(version, bucket.version) then
        bucket.level = bucket.level + math.min(0, limit.capacity - bucket.capacity)
        bucket.capacity, bucket.rate, bucket.version = limit.capacity, limit.rate, version
        bucket.dirty = true
    end
    return bucket
end

-- Return the microseconds until the cost can be spent; -1: never.
local function bucket_wait(bucket, cost)
    if cost > bucket.capacity then
        return -1
    end
    local blocked_us = math.max(0, bucket.blocked - now)
    local shortfall = cost - bucket.level
    if shortfall <= 0 then
        return blocked_us
    end
    return blocked_us + math.ceil(shortfall / bucket.rate * MICRO)
end
