-- gate: judge a batch of admissions, ends, cancellations and renewals, one after the other.
-- Takes   KEYS     the marker, then the keys of each item: breaker, quota, pool, buckets, as its plan has them
--         ARGV     head, prefix, then per item three: plan, ask (both packed, see codec.py), holder
-- Gives   the server's time, then one packed answer per item, in order
-- Writes  what the items change, each key once, with a time to live
-- Needs   all keys under one hash tag in a cluster; the limits travel in the plans (R28)
--
-- Redis runs a script whole, so the state of a key is read once, changed by every item that meets it, and
-- written back at the end.

--- @include clock
--- @include bucket
--- @include breaker
--- @include pool

local plans = {}

local function plan_of(blob)
    local plan = plans[blob]
    if plan then
        return plan
    end
    plan = {}
    local flags, count, at = struct.unpack('<BB', blob)
    if flags % 2 >= 1 then
        local rule = {}
        rule.failures, rule.ratio, rule.least, rule.open_us, rule.open_max_us, rule.ramp_us, at =
            struct.unpack('<dddddd', blob, at)
        plan.breaker = rule
    end
    if flags % 4 >= 2 then
        plan.quota, at = struct.unpack('<d', blob, at)
    end
    if flags % 8 >= 4 then
        plan.pool, at = pool_limit(blob, at)
    end
    for i = 1, count do
        local limit = {}
        limit.capacity, limit.rate, limit.version, at = struct.unpack('<ddd', blob, at)
        plan[i] = limit
    end
    plans[blob] = plan
    return plan
end

-- The state of each key that the plan names, read where this batch has not met it yet.
local function meet(plan, key)
    local met = {}
    if plan.breaker then
        met.breaker = breaker_at(KEYS[key])
        key = key + 1
    end
    if plan.quota then
        met.quota = quota_at(KEYS[key])
        met.quota.capacity = plan.quota
        key = key + 1
    end
    if plan.pool then
        met.pool = pool_at(KEYS[key], plan.pool)
        key = key + 1
    end
    for i = 1, #plan do
        met[i] = KEYS[key]
        key = key + 1
    end
    return met, key
end

local ADMITTED, BOOKED, QUEUED, REFUSED = 0, 1, 2, 3
local BREAKER, QUOTA, SLOT, BUCKET, RECOVERY = 1, 2, 3, 4, 5

local function answer(verdict, by, wait_us, which)
    return struct.pack('<BBBBdd', verdict, by, which or 0, 0, wait_us, 0)
end

local function all_spent(plan, met, costs, redeemed, fence, probe)
    local sent = {}
    for i = 1, #plan do
        local bucket = met[i]
        if redeemed then
            bucket.booked = bucket.booked - costs[i]
        else
            bucket.level = bucket.level - costs[i]
        end
        bucket.sent = bucket.sent + costs[i]
        bucket.dirty = true
        sent[i] = struct.pack('<d', bucket.sent)
        log_spent(bucket, costs[i])
    end
    return struct.pack('<BBBBdd', ADMITTED, 0, 0, probe and 1 or 0, 0, fence) .. table.concat(sent)
end

local function admit(plan, met, ask, at, holder)
    local cold_full, age_us, line_us, book_us, call_us
    cold_full, age_us, line_us, book_us, call_us, at = struct.unpack('<Bdddd', ask, at)
    local costs = {}
    for i = 1, #plan do
        costs[i], at = struct.unpack('<d', ask, at)
        met[i] = bucket_at(met[i], plan[i], cold_full == 1)
    end
    local booking = struct.unpack('<c16', ask, at)

    local probe
    if met.breaker then
        local wait_us
        wait_us, probe = breaker_judge(met.breaker, plan.breaker)
        if wait_us > 0 then
            leave(met, holder)
            return answer(REFUSED, BREAKER, wait_us)
        end
    end

    local redeemed = redeem(plan, met, costs, booking)
    if type(redeemed) == 'number' then
        return answer(BOOKED, BUCKET, redeemed)
    end
    if not redeemed then
        local longest_us, which = 0, 0
        for i = 1, #plan do
            local wait_us = bucket_wait(met[i], costs[i])
            if wait_us < 0 then
                leave(met, holder)
                return answer(REFUSED, BUCKET, -1, i)
            end
            if wait_us > longest_us then
                longest_us, which = wait_us, i
            end
        end
        if longest_us > 0 then
            leave(met, holder)
            if longest_us > book_us then
                return answer(REFUSED, BUCKET, longest_us, which)
            end
            all_booked(plan, met, costs, booking, longest_us)
            return answer(BOOKED, BUCKET, longest_us, which)
        end
    end

    local fence = 0
    if met.pool or met.quota then
        local taken, wait_us
        taken, wait_us, fence = take(met, plan, holder, now - age_us, line_us)
        if taken ~= TAKEN then
            if redeemed then
                all_unbooked(plan, met, costs)
            end
            if taken == IN_LINE then
                return answer(QUEUED, SLOT, wait_us)
            end
            return answer(REFUSED, taken, wait_us)
        end
    end
    if met.breaker then
        breaker_pass(met.breaker, probe, call_us)
    end
    return all_spent(plan, met, costs, redeemed, fence, probe)
end

local function finish(plan, met, ask, at, holder)
    local probe, health, count
    probe, health, count, at = struct.unpack('<BBB', ask, at)
    for _ = 1, count do
        local index, told, refund, left, sent, capacity, rate, wait_us
        index, told, refund, left, sent, capacity, rate, wait_us, at = struct.unpack('<BBdddddd', ask, at)
        local bucket = bucket_at(met[index], plan[index], false)
        bucket_settle(bucket, refund)
        if told % 8 >= 1 then
            bucket_observe(bucket, told, left, sent, capacity, rate)
        end
        if told >= 8 then
            bucket_penalise(bucket, now + wait_us)
        end
    end
    local opened_us = 0
    if met.breaker then
        opened_us = breaker_record(met.breaker, plan.breaker, health, probe == 1)
    end
    local kept = true
    if met.pool or met.quota then
        kept = give_back(met, holder)
    end
    return struct.pack('<Bd', kept and 1 or 0, opened_us)
end

local function cancel(plan, met, ask, at, holder)
    local costs = {}
    for i = 1, #plan do
        costs[i], at = struct.unpack('<d', ask, at)
        met[i] = bucket_at(met[i], plan[i], false)
    end
    local booking = struct.unpack('<c16', ask, at)
    if booked_ahead(plan, met, costs, booking) then
        all_unbooked(plan, met, costs)
    end
    leave(met, holder)
    return struct.pack('<Bd', 1, 0)
end

local function keep(_, met, ask, at, holder)
    local line_us, held = struct.unpack('<dB', ask, at)
    return struct.pack('<Bd', renew(met, holder, line_us, held), 0)
end

local acts = { admit, finish, cancel, keep }
local answers = { struct.pack('<dd', now, marker.birth) }
local key = 2
for i = 3, #ARGV, 3 do
    local plan = plan_of(ARGV[i])
    local ask = ARGV[i + 1]
    local act, at = struct.unpack('<B', ask)
    local met
    met, key = meet(plan, key)
    answers[#answers + 1] = acts[act](plan, met, ask, at, ARGV[i + 2])
end
write_buckets()
write_breakers()
write_pools()
return answers
