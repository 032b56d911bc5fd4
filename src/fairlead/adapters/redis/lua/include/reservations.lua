-- reservations: reserved units of buckets, and the effect of responses on buckets. Created when first needed.

local function make_reservations(functions)
    local MANY = 64

    local function reservation_name(reservation, cost)
        return reservation .. ':' .. string.format('%.0f', cost)
    end

    -- Return the units of expired reservations to the level. If the clock was set back by back_us, move all
    -- reservations back first.
    function functions.expire_reservations(bucket, back_us)
        local reservations_key = bucket_key(bucket, ':t')
        if back_us > 0 then
            local entries = redis.call('ZRANGE', reservations_key, 0, -1, 'WITHSCORES')
            for i = 1, #entries, 2 do
                redis.call('ZADD', reservations_key, tonumber(entries[i + 1]) - back_us, entries[i])
            end
        end
        local expired
        repeat
            local before = '(' .. string.format('%.0f', now)
            expired = redis.call('ZRANGEBYSCORE', reservations_key, '-inf', before, 'LIMIT', 0, MANY)
            for _, entry in ipairs(expired) do
                local cost = tonumber(string.sub(entry, 18)) or 0
                bucket.level, bucket.reserved, bucket.dirty = bucket.level + cost, bucket.reserved - cost, true
                redis.call('ZREM', reservations_key, entry)
            end
        until #expired < MANY
        if bucket.reserved > 0 and redis.call('EXISTS', reservations_key) == 0 then
            bucket.level, bucket.reserved, bucket.dirty = bucket.level + bucket.reserved, 0, true
        end
    end

    function functions.reserve_all(buckets, costs, reservation, wait_us)
        local until_us = now + wait_us + REDEEM_US
        for i, bucket in ipairs(buckets) do
            bucket.level, bucket.reserved = bucket.level - costs[i], bucket.reserved + costs[i]
            bucket.dirty = true
            local reservations_key = bucket_key(bucket, ':t')
            redis.call('ZADD', reservations_key, until_us, reservation_name(reservation, costs[i]))
            local last = redis.call('ZRANGE', reservations_key, -1, -1, 'WITHSCORES')  -- another one may be later
            redis.call('PEXPIRE', reservations_key, math.ceil((tonumber(last[2]) - now) / 1000) + 60000)
        end
    end

    -- Remove the reservations if every bucket has one, and return whether it has. The caller redeems or
    -- refunds them.
    function functions.remove_reservations(buckets, costs, reservation)
        local all_reserved = #buckets > 0 and reservation ~= NO_RESERVATION
        for i, bucket in ipairs(buckets) do
            all_reserved = all_reserved and bucket.reserved > 0
                and redis.call('ZSCORE', bucket_key(bucket, ':t'), reservation_name(reservation, costs[i]))
        end
        if not all_reserved then
            return false
        end
        for i, bucket in ipairs(buckets) do
            redis.call('ZREM', bucket_key(bucket, ':t'), reservation_name(reservation, costs[i]))
        end
        return true
    end

    function functions.unreserve_all(buckets, costs)
        for i, bucket in ipairs(buckets) do
            bucket.level, bucket.reserved = bucket.level + costs[i], bucket.reserved - costs[i]
            bucket.dirty = true
        end
    end

    -- Late reservations are due together, but the refill since then is at most one bucket.
    local function redeemable_in(bucket, cost)
        local shortfall = cost - bucket.level - bucket.reserved
        return shortfall > 0 and math.ceil(shortfall / bucket.rate * MICRO) or 0
    end

    -- Redeem reservations that are due and return true; or return the microseconds until then; or false if
    -- there are none. While the provider asks to wait they are void, and their cost is returned.
    function functions.redeem(buckets, costs, reservation)
        local early_us = 0
        local blocked = false
        for i, bucket in ipairs(buckets) do
            local until_us = bucket.reserved > 0
                and redis.call('ZSCORE', bucket_key(bucket, ':t'), reservation_name(reservation, costs[i]))
            if not until_us then
                return false
            end
            early_us = math.max(early_us, tonumber(until_us) - REDEEM_US - now, redeemable_in(bucket, costs[i]))
            blocked = blocked or now < bucket.blocked
        end
        if early_us > 0 and not blocked then
            return early_us
        end
        if not functions.remove_reservations(buckets, costs, reservation) then
            return false
        end
        if blocked then
            functions.unreserve_all(buckets, costs)
        end
        return not blocked
    end

    function functions.settle(bucket, refund)
        local least = math.min(bucket.level, -bucket.capacity - bucket.reserved)  -- a debt of one capacity
        bucket.level = math.max(least, math.min(bucket.level + refund, bucket.capacity - bucket.reserved))
        bucket.sent = bucket.sent + math.max(0, -refund)
        bucket.dirty = true
    end

    -- flags: 1 the remaining units, 2 the capacity, 4 the rate.
    function functions.observe(bucket, flags, remaining, sent_then, capacity, rate)
        if flags % 4 >= 2 then
            bucket.level = bucket.level + math.min(0, capacity - bucket.capacity)
            bucket.capacity = capacity
        end
        if flags % 8 >= 4 then
            bucket.rate = rate
        end
        bucket.dirty = true
        if flags % 2 < 1 then
            return
        end
        local since = math.max(0, bucket.sent - sent_then)
        local level_seen = math.min(remaining, bucket.capacity) - since - bucket.reserved
        if since == 0 or level_seen < bucket.level then
            bucket.level, bucket.rest = level_seen, 0
        end
    end

    function functions.penalise(bucket)
        bucket.level, bucket.rest = math.min(bucket.level, -bucket.reserved), 0
    end

    function functions.hold(bucket, until_us)
        bucket.blocked = math.max(bucket.blocked, until_us)
        bucket.dirty = true
    end

    function functions.log_spent(bucket, cost)
        redis.call('XADD', bucket_key(bucket, ':e'), 'MAXLEN', '~', spends, '*', 't', now, 'c', cost)
        redis.call('PEXPIRE', bucket_key(bucket, ':e'), 3600000)
    end
end
