-- turns: what buckets promise to those who wait, and what answers tell of them. Made when first needed.

local function make_turns(found)
    local MANY = 64

    local function turn_name(booking, cost)
        return booking .. ':' .. string.format('%.0f', cost)
    end

    -- Turns whose time to be redeemed has passed go back to the level. With a clock that was set back by
    -- back_us, what was promised moves first.
    function found.reap_bookings(bucket, back_us)
        local turns = bucket_key(bucket, ':t')
        if back_us > 0 then
            local promised = redis.call('ZRANGE', turns, 0, -1, 'WITHSCORES')
            for i = 1, #promised, 2 do
                redis.call('ZADD', turns, tonumber(promised[i + 1]) - back_us, promised[i])
            end
        end
        local late
        repeat
            late = redis.call('ZRANGEBYSCORE', turns, '-inf', '(' .. string.format('%.0f', now), 'LIMIT', 0, MANY)
            for _, turn in ipairs(late) do
                local cost = tonumber(string.sub(turn, 18)) or 0
                bucket.level, bucket.booked, bucket.dirty = bucket.level + cost, bucket.booked - cost, true
                redis.call('ZREM', turns, turn)
            end
        until #late < MANY
        if bucket.booked > 0 and redis.call('EXISTS', turns) == 0 then
            bucket.level, bucket.booked, bucket.dirty = bucket.level + bucket.booked, 0, true
        end
    end

    function found.all_booked(buckets, costs, booking, wait_us)
        local until_us = now + wait_us + REDEEM_US
        for i, bucket in ipairs(buckets) do
            bucket.level, bucket.booked = bucket.level - costs[i], bucket.booked + costs[i]
            bucket.dirty = true
            local turns = bucket_key(bucket, ':t')
            redis.call('ZADD', turns, until_us, turn_name(booking, costs[i]))
            local last = redis.call('ZRANGE', turns, -1, -1, 'WITHSCORES')  -- another's may lie further ahead
            redis.call('PEXPIRE', turns, math.ceil((tonumber(last[2]) - now) / 1000) + 60000)
        end
    end

    -- Takes the turns out where the buckets promised them; the caller redeems or refunds them.
    function found.booked_ahead(buckets, costs, booking)
        local all = #buckets > 0 and booking ~= NO_BOOKING
        for i, bucket in ipairs(buckets) do
            all = all and bucket.booked > 0
                and redis.call('ZSCORE', bucket_key(bucket, ':t'), turn_name(booking, costs[i]))
        end
        if not all then
            return false
        end
        for i, bucket in ipairs(buckets) do
            redis.call('ZREM', bucket_key(bucket, ':t'), turn_name(booking, costs[i]))
        end
        return true
    end

    function found.all_unbooked(buckets, costs)
        for i, bucket in ipairs(buckets) do
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
    function found.redeem(buckets, costs, booking)
        local early_us = 0
        local blocked = false
        for i, bucket in ipairs(buckets) do
            local until_us = bucket.booked > 0
                and redis.call('ZSCORE', bucket_key(bucket, ':t'), turn_name(booking, costs[i]))
            if not until_us then
                return false
            end
            early_us = math.max(early_us, tonumber(until_us) - REDEEM_US - now, redeemable_in(bucket, costs[i]))
            blocked = blocked or now < bucket.blocked
        end
        if early_us > 0 and not blocked then
            return early_us
        end
        if not found.booked_ahead(buckets, costs, booking) then
            return false
        end
        if blocked then
            found.all_unbooked(buckets, costs)
        end
        return not blocked
    end

    function found.settle(bucket, refund)
        local least = math.min(bucket.level, -bucket.capacity - bucket.booked)  -- a debt of one capacity
        bucket.level = math.max(least, math.min(bucket.level + refund, bucket.capacity - bucket.booked))
        bucket.sent = bucket.sent + math.max(0, -refund)
        bucket.dirty = true
    end

    -- told: 1 what is left, 2 the capacity, 4 the rate.
    function found.observe(bucket, told, left, sent_then, capacity, rate)
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

    function found.penalise(bucket)
        bucket.level, bucket.rest = math.min(bucket.level, -bucket.booked), 0
    end

    function found.hold(bucket, until_us)
        bucket.blocked = math.max(bucket.blocked, until_us)
        bucket.dirty = true
    end

    function found.log_spent(bucket, cost)
        redis.call('XADD', bucket_key(bucket, ':e'), 'MAXLEN', '~', spends, '*', 't', now, 'c', cost)
        redis.call('PEXPIRE', bucket_key(bucket, ':e'), 3600000)
    end
end
