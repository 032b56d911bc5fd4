-- full_path: admission, release, cancellation and renewal in every state.

local lazy_makers = {}
local lazy_functions

local function lazy()
    if not lazy_functions then
        lazy_functions = {}
        for _, make in ipairs(lazy_makers) do
            make(lazy_functions)
        end
    end
    return lazy_functions
end

--- @include state_tables
--- @include breaker
--- @include bucket
--- @include pool
--- @include reservations
--- @include wait_queue
lazy_makers[1], lazy_makers[2] = make_reservations, make_wait_queue

local plans = {}

local function pool_limit(blob, at)
    local limit = {}
    local flags
    limit.capacity, limit.lease_us, limit.claim_us, limit.promote_us, limit.max_waiters,
        limit.classes, flags, at = struct.unpack('<dddddBB', blob, at)
    limit.is_fenced = flags >= 2
    if flags % 2 == 1 then
        limit.minimum = {}
        for class = 1, limit.classes do
            limit.minimum[class], at = struct.unpack('<d', blob, at)
        end
    end
    return limit, at
end

local function plan_of(blob)
    local plan = plans[blob]
    if plan then
        return plan
    end
    plan = {}
    local flags, count, at = struct.unpack('<BB', blob)
    local place = flags >= 4 and 1 or 0
    if flags % 2 >= 1 then
        local rule = {}
        rule.failures, rule.ratio, rule.least, rule.open_us, rule.open_max_us, rule.ramp_us, at =
            struct.unpack('<dddddd', blob, at)
        place = place + 1
        plan.breaker, plan.breaker_place = rule, place
    end
    if flags % 4 >= 2 then
        place = place + 1
        plan.quota_place = place
        plan.quota, at = struct.unpack('<d', blob, at)
    end
    if flags >= 4 then
        plan.pool_place = 1
        plan.pool, at = pool_limit(blob, at)
    end
    plan.first_bucket = place
    plan.last = place + count
    for i = 1, count do
        local limit = {}
        limit.capacity, limit.rate, at = struct.unpack('<dd', blob, at)
        plan[i] = limit
    end
    plans[blob] = plan
    return plan
end

local ADMITTED, RESERVED, QUEUED, REFUSED = 0, 1, 2, 3
local BY_BREAKER, BY_SLOT, BY_BUCKET = 1, 3, 4

local FAILURES_MS = 86400000
local SOON_US = MICRO

local function breaker_at(plan)
    return state_at(plan.breaker_place, plan.last, breaker_read)
end

-- Log the latest failures for the operator.
local function log_failure(breaker, holder, opened_us, name)
    local key = string.sub(cell_key, 1, -2) .. 'k:' .. string.sub(breaker.name, 2) .. ':f'
    redis.call('XADD', key, 'MAXLEN', 20, '*', 't', now, 'h', holder, 'o', opened_us, 'n', name)
    redis.call('PEXPIRE', key, FAILURES_MS)
end

-- Refuse an admission, and release its slot and its place in the queue, because nothing is sent.
local function refuse(plan, holder, verdict, by, wait_us, which, capacity)
    if holder ~= '' then
        local pool, quota = slots_at(plan)
        lazy().leave_queue(pool, quota, holder)
    end
    return struct.pack('<BBBBdd', verdict, by, which or 0, 0, wait_us, capacity or 0)
end

local function admit(blob, request, holder)
    local plan = plan_of(blob)
    local existed_us, age_us, wait_us_left, reserve_ahead_us, call_us, at = struct.unpack('<ddddd', request, 2)
    local starts_full = marker.birth <= now - existed_us
    local buckets, costs = {}, {}
    local longest_us, which, has_reservations = 0, 0, false
    for i = 1, #plan do
        costs[i], at = struct.unpack('<d', request, at)
        local bucket = bucket_at(plan, i, starts_full)
        buckets[i] = bucket
        has_reservations = has_reservations or bucket.reserved > 0
        local wait_us = bucket_wait(bucket, costs[i])
        if wait_us < 0 or wait_us > longest_us and longest_us >= 0 then
            if longest_us >= 0 then
                longest_us, which = wait_us, i
            end
        end
    end

    local breaker, probe
    if plan.breaker then
        breaker = breaker_at(plan)
        local wait_us
        wait_us, probe = breaker_check(breaker, plan.breaker)
        if wait_us > 0 then
            return refuse(plan, holder, REFUSED, BY_BREAKER, wait_us)
        end
    end

    local redemption = false
    if has_reservations then
        local reservation = struct.unpack('<c16', request, at)
        if reservation ~= NO_RESERVATION then
            redemption = lazy().redeem(buckets, costs, reservation)
            if type(redemption) == 'number' then
                if redemption <= SOON_US then  -- meanwhile it retains a slot that was granted to it
                    return struct.pack('<BBBBdd', RESERVED, BY_BUCKET, 0, 0, redemption, 0)
                end
                return refuse(plan, holder, RESERVED, BY_BUCKET, redemption)
            end
            if not redemption and longest_us >= 0 then  -- its void reservation was refunded
                longest_us, which = 0, 0
                for i, bucket in ipairs(buckets) do
                    local wait_us = bucket_wait(bucket, costs[i])
                    if wait_us > longest_us then
                        longest_us, which = wait_us, i
                    end
                end
            end
        end
    end
    if longest_us ~= 0 and not redemption then
        if longest_us < 0 or longest_us > reserve_ahead_us then
            return refuse(plan, holder, REFUSED, BY_BUCKET, longest_us, which, buckets[which].capacity)
        end
        lazy().reserve_all(buckets, costs, struct.unpack('<c16', request, at), longest_us)
        return refuse(plan, holder, RESERVED, BY_BUCKET, longest_us, which)
    end

    local fence = 0
    if plan.pool then
        local pool, quota = slots_at(plan)
        local slot_result, wait_us
        slot_result, wait_us, fence = take_slot(pool, quota, plan.pool, holder, now - age_us, wait_us_left)
        if slot_result ~= TAKEN then
            local is_queued = slot_result == IN_QUEUE
            if redemption then
                lazy().unreserve_all(buckets, costs)
            end
            local reservation = struct.unpack('<c16', request, at)
            if is_queued and reservation ~= NO_RESERVATION then  -- a call that gets a slot uses its reservation
                lazy().reserve_all(buckets, costs, reservation, 0)
            end
            local verdict, by = is_queued and QUEUED or REFUSED, is_queued and BY_SLOT or slot_result
            return struct.pack('<BBBBdd', verdict, by, 0, 0, wait_us, 0)
        end
    end
    if breaker then
        breaker_pass(breaker, probe, call_us)
    end
    local result = struct.pack('<BBBBdd', ADMITTED, 0, 0, probe and 1 or 0, probe and breaker.until_us or 0, fence)
    for i, bucket in ipairs(buckets) do
        if redemption then
            bucket.reserved = bucket.reserved - costs[i]
        else
            bucket.level = bucket.level - costs[i]
        end
        bucket.sent = bucket.sent + costs[i]
        bucket.dirty = true
        result = result .. struct.pack('<d', bucket.sent)
        if spends > 0 then
            lazy().log_spent(bucket, costs[i])
        end
    end
    return result
end

local function release(blob, request, holder)
    local plan = plan_of(blob)
    local probe, health, count, at = struct.unpack('<BBB', request, 2)
    local keeps_slot = health >= KEEPS_SLOT or health == BEGUN
    health = health % KEEPS_SLOT
    if probe > 0 then
        probe, at = struct.unpack('<d', request, at)
    end
    local reporter = 0
    if health == UNREACHED then
        reporter, at = struct.unpack('<d', request, at)
    end
    for _ = 1, count do
        local index, flags, refund, remaining, sent, capacity, rate, wait_us
        index, flags, refund, remaining, sent, capacity, rate, wait_us, at = struct.unpack('<BBdddddd', request, at)
        local bucket = bucket_at(plan, index, false)
        lazy().settle(bucket, refund)
        if flags % 8 >= 1 then
            lazy().observe(bucket, flags, remaining, sent, capacity, rate)
        end
        if flags % 16 >= 8 then
            lazy().penalise(bucket)
        end
        if flags >= 8 then
            lazy().hold(bucket, now + wait_us)
        end
    end
    local opened_us, closed = 0, false
    if plan.breaker then
        local breaker = breaker_at(plan)
        opened_us, closed = breaker_record(breaker, plan.breaker, health, probe, reporter)
        if health == UNHEALTHY or health == UNREACHED then
            log_failure(breaker, holder, opened_us, string.sub(request, at))
        end
    end
    local had_lease = true
    if not keeps_slot and plan.pool then
        local pool, quota = slots_at(plan)
        had_lease = release_slot(pool, quota, holder)
    end
    return struct.pack('<Bd', (had_lease and 1 or 0) + (closed and 2 or 0), opened_us)
end

local function cancel(blob, request, holder)
    local plan = plan_of(blob)
    local buckets, costs = {}, {}
    local at = 2
    for i = 1, #plan do
        costs[i], at = struct.unpack('<d', request, at)
        buckets[i] = bucket_at(plan, i, false)
    end
    if lazy().remove_reservations(buckets, costs, (struct.unpack('<c16', request, at))) then
        lazy().unreserve_all(buckets, costs)
    end
    local pool, quota = slots_at(plan)
    lazy().leave_queue(pool, quota, holder)
    return struct.pack('<Bd', 1, 0)
end

local function renew(blob, request, holder)
    local plan = plan_of(blob)
    local wait_us_left, retake = struct.unpack('<dB', request, 2)
    local pool, quota = slots_at(plan)
    return struct.pack('<Bd', lazy().renew(pool, quota, holder, wait_us_left, retake), 0)
end

-- Delete keys of another type, so that their state starts anew. Return whether there were any.
function repair()
    local key_types, base = { [cell_key] = 'hash' }, sub(cell_key, 1, -2)
    local function add_name(name)
        local key = base .. sub(name, 1, 1) .. ':' .. sub(name, 2)
        key_types[key .. ':e'], key_types[key .. ':f'] = 'stream', 'stream'
        for part in string.gmatch('l a t w1 w2 w3 w4 w5 w6 w7 w8 w9', '%S+') do
            key_types[key .. ':' .. part] = 'zset'
        end
    end
    for place = 1, (#names - 1) / (NAME + 8) do
        add_name(name_at(place))
    end
    for name in pairs(states or {}) do
        add_name(name)
    end
    for key, expected_type in pairs(key_types) do
        local key_type = redis.call('TYPE', key).ok
        if key_type ~= expected_type and key_type ~= 'none' then
            redis.call('DEL', key)
            repaired_cell = cell_key
        end
    end
    if repaired_cell == cell_key then  -- leases may have been among them
        quota_counts = nil
        for _, state in pairs(states or {}) do
            state.leases, state.used, state.is_counted = false, false, false
        end
    end
    return repaired_cell == cell_key
end

full_path = { admit, release, cancel, renew }
