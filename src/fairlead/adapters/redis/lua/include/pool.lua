-- pool: policy/gate/pool.py in Lua; the contract suite holds the two together.
--
-- A holder is one text, its fields apart by \31: lease id, process, class, digest and capacity of its
-- tenant's quota, tenant, job. It is the member of every sorted set here, so the sets need no index.

local SCANNED = 64
local HOUR_MS = 3600000
local TAKEN, IN_LINE = 0, -1
local FULL, NO_QUOTA, LEARNING = 3, 2, 5
local GONE, HELD, WAITING = 0, 1, 2

local pools = {}
local quotas = {}

local function pool_limit(blob, at)
    local limit = {}
    local kept
    limit.capacity, limit.version, limit.lease_us, limit.claim_us, limit.promote_us, limit.max_waiters,
        limit.classes, kept, at = struct.unpack('<ddddddBB', blob, at)
    if kept == 1 then
        limit.minimum = {}
        for class = 1, limit.classes do
            limit.minimum[class], at = struct.unpack('<d', blob, at)
        end
    end
    return limit, at
end

local function field(holder, number)
    local from = 1
    for _ = 2, number do
        from = string.find(holder, '\31', from, true) + 1
    end
    local to = string.find(holder, '\31', from, true)
    return string.sub(holder, from, to and to - 1)
end

-- u: the end of a lease that expired; policy/gate/verdict.py reads it all.
local function log(pool, kind, holder, until_us)
    if events > 0 then
        redis.call('XADD', pool.events, 'MAXLEN', '~', events, '*', 'k', kind, 't', now, 'n', pool.used,
            'c', pool.capacity, 'h', holder, 'u', until_us or 0)
        pool.logged = true
    end
end

-- ---- leases: of a pool, and of a tenant across pools --------------------------------------------

local function expire(key, count, each)
    if count == 0 or now < marker.reap_from then
        return count
    end
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if not first[2] or tonumber(first[2]) > now then
        return count
    end
    local ended = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES')
    for i = 1, #ended, 2 do
        redis.call('ZREM', key, ended[i])
        count = count - 1
        each(ended[i], count, ended[i + 1])
    end
    return count
end

local function nothing() end

-- While the clock is under suspicion no lease may reach further than one that is given now.
local function cut(key, lease_us)
    if now >= marker.reap_from then
        return
    end
    for _, holder in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now + lease_us), '+inf')) do
        redis.call('ZADD', key, now + lease_us, holder)
    end
end

local function quota_at(key)
    local quota = quotas[key]
    if not quota then
        cut(key, lease_us)
        quota = { key = key }
        quota.used = expire(key, redis.call('ZCARD', key), nothing)
        quotas[key] = quota
    end
    return quota
end

local function quota_of(pool, holder)
    local digest = field(holder, 4)
    if digest == '' then
        return nil
    end
    local quota = quota_at(string.sub(pool.key, 1, -26) .. ':q:' .. digest)
    quota.capacity = tonumber(field(holder, 5))
    return quota
end

local function lease(key, holder, until_us, ttl_ms)
    local added = redis.call('ZADD', key, until_us, holder)
    redis.call('PEXPIRE', key, ttl_ms)
    return added
end

-- ---- a pool -------------------------------------------------------------------------------------

local function pool_at(key, limit)
    local pool = pools[key]
    if not pool then
        pool = { key = key, leases = key .. ':l', alive = key .. ':a', line = key .. ':w', events = key .. ':e' }
        local kept = redis.call('GET', key)
        if kept then
            pool.version, pool.capacity, pool.fence = struct.unpack('<ddd', kept)
        else
            pool.version, pool.capacity, pool.fence = limit.version, limit.capacity, now
            pool.dirty = true
        end
        pool.limit = limit
        cut(pool.leases, limit.lease_us)
        pool.used = expire(pool.leases, redis.call('ZCARD', pool.leases), function(holder, used, until_us)
            pool.used = used
            log(pool, 'expire', holder, until_us)
        end)
        pool.waiting = redis.call('ZCARD', pool.alive)
        pool.waiting = expire(pool.alive, pool.waiting, function(holder)
            redis.call('ZREM', pool.line .. field(holder, 3), holder)
            log(pool, 'absent', holder)
        end)
        pools[key] = pool
    end
    if limit.version > pool.version then
        pool.version, pool.capacity, pool.dirty = limit.version, limit.capacity, true
    end
    pool.limit = limit
    return pool
end

local function used_by_class(pool)
    local used = {}
    for _, holder in ipairs(redis.call('ZRANGE', pool.leases, 0, -1)) do
        local class = tonumber(field(holder, 3))
        used[class] = (used[class] or 0) + 1
    end
    return used
end

local function kept_for_others(pool, class)
    local kept = 0
    if pool.limit.minimum then
        local used = used_by_class(pool)
        for other, least in ipairs(pool.limit.minimum) do
            if other ~= class then
                kept = kept + math.max(0, least - (used[other] or 0))
            end
        end
    end
    return kept
end

-- 0, or the part of the gate that is in the way.
local function in_the_way(pool, quota, class)
    if quota and quota.used >= quota.capacity then
        return NO_QUOTA
    end
    if pool.used >= pool.capacity or pool.capacity - pool.used - kept_for_others(pool, class) <= 0 then
        return FULL
    end
    return 0
end

local function grant(pool, quota, holder, until_us, kind)
    pool.used = pool.used + lease(pool.leases, holder, until_us, math.ceil((until_us - now) / 1000) + HOUR_MS)
    if quota then
        quota.used = quota.used + lease(quota.key, holder, until_us, math.ceil((until_us - now) / 1000) + HOUR_MS)
    end
    pool.fence, pool.dirty = pool.fence + 1, true
    log(pool, kind, holder)
end

local function out_of_line(pool, holder)
    if pool.waiting > 0 and redis.call('ZREM', pool.alive, holder) == 1 then
        redis.call('ZREM', pool.line .. field(holder, 3), holder)
        pool.waiting = pool.waiting - 1
        return true
    end
    return false
end

-- The first of a class that may take a slot: holder, since when it waits, its quota.
local function head_of(pool, class)
    for from = 0, SCANNED - 1 do
        local waiter = redis.call('ZRANGE', pool.line .. class, from, from, 'WITHSCORES')
        if not waiter[1] then
            return nil
        end
        local quota = quota_of(pool, waiter[1])
        if in_the_way(pool, quota, class) == 0 then
            return waiter[1], tonumber(waiter[2]), quota
        end
        if not quota then
            return nil
        end
    end
end

local function following(pool)
    local best, best_since, best_quota
    local promoted = false
    for class = 1, pool.limit.classes do
        local holder, since_us, quota = head_of(pool, class)
        if holder then
            local late = since_us <= now - pool.limit.promote_us
            if not best or (late and (not promoted or since_us < best_since)) then
                best, best_since, best_quota = holder, since_us, quota
                promoted = promoted or late
            end
        end
    end
    return best, best_quota, promoted
end

-- Gives free slots to who waits, in order, and tells each process. The asker itself needs no telling.
local function hand_over(pool, asker)
    local served = false
    while pool.waiting > 0 and pool.used < pool.capacity do
        local holder, quota, promoted = following(pool)
        if not holder then
            break
        end
        out_of_line(pool, holder)
        if holder == asker then
            served = true
            grant(pool, quota, holder, now + pool.limit.lease_us, promoted and 'promote' or 'grant')
        else
            grant(pool, quota, holder, now + pool.limit.claim_us, promoted and 'promote' or 'hand')
            redis.call('PUBLISH', PREFIX .. 'g:' .. field(holder, 2), field(holder, 1))
        end
    end
    return served
end

local function stand_in_line(pool, holder, since_us, line_us)
    local class = field(holder, 3)
    if redis.call('ZADD', pool.alive, now + math.max(line_us, 1), holder) == 1 then
        pool.waiting = pool.waiting + 1
        if line_us > 0 then
            log(pool, 'wait', holder)
        end
    end
    redis.call('ZADD', pool.line .. class, since_us, holder)
    local ttl_ms = math.ceil(line_us / 1000) + HOUR_MS
    redis.call('PEXPIRE', pool.alive, ttl_ms)
    redis.call('PEXPIRE', pool.line .. class, ttl_ms)
end

-- When the first of the leases in the way may end: the latest time to ask again.
local function first_end(key)
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    return first[2] and math.max(1000, tonumber(first[2]) - now) or 1000000
end

-- A slot for the holder: TAKEN and its fence; IN_LINE; or what is in the way and for how long at most.
local function take_slot(pool, quota, limit, holder, since_us, line_us)
    local lease_us = limit.lease_us
    if redis.call('ZSCORE', pool.leases, holder) then
        grant(pool, quota, holder, now + lease_us, 'claim')
        return TAKEN, 0, pool.fence
    end
    if now < marker.grants_from then
        return LEARNING, marker.grants_from - now, 0
    end
    local class = limit.classes > 1 and tonumber(field(holder, 3)) or 1
    local hindrance = in_the_way(pool, quota, class)
    if pool.waiting == 0 and hindrance == 0 then
        grant(pool, quota, holder, now + lease_us, 'grant')
        return TAKEN, 0, pool.fence
    end
    local end_us = first_end(hindrance == NO_QUOTA and quota.key or pool.leases)
    if pool.waiting >= limit.max_waiters and not redis.call('ZSCORE', pool.alive, holder) then
        return math.max(hindrance, 2), end_us, 0
    end
    stand_in_line(pool, holder, since_us, line_us)
    if hand_over(pool, holder) then
        return TAKEN, 0, pool.fence
    end
    if line_us <= 0 then
        out_of_line(pool, holder)
        return hindrance == NO_QUOTA and NO_QUOTA or FULL, end_us, 0
    end
    return IN_LINE, math.min(end_us, 1000000), 0
end

-- A tenant's quota without slots of its own.
local function take_quota(quota, holder)
    local until_us = now + lease_us
    if not redis.call('ZSCORE', quota.key, holder) and quota.used >= quota.capacity then
        return NO_QUOTA, first_end(quota.key), 0
    end
    quota.used = quota.used + lease(quota.key, holder, until_us, math.ceil(lease_us / 1000) + HOUR_MS)
    return TAKEN, 0, 0
end

local function take(met, plan, holder, since_us, line_us)
    if met.pool then
        return take_slot(met.pool, met.quota, plan.pool, holder, since_us, line_us)
    end
    return take_quota(met.quota, holder)
end

local function drop_quota(quota, holder)
    if quota and redis.call('ZREM', quota.key, holder) == 1 then
        quota.used = quota.used - 1
        return true
    end
    return false
end

-- The call is over. False: its lease had ended before.
local function give_back(met, holder)
    local had = drop_quota(met.quota, holder)
    local pool = met.pool
    if not pool then
        return had
    end
    had = redis.call('ZREM', pool.leases, holder) == 1
    if had then
        pool.used = pool.used - 1
        log(pool, 'release', holder)
    else
        log(pool, 'late', holder)
    end
    hand_over(pool)
    return had
end

-- The call is not made: give up a place in line, and a slot that was granted meanwhile.
local function leave(met, holder)
    if holder == '' then
        return
    end
    drop_quota(met.quota, holder)
    local pool = met.pool
    if not pool then
        return
    end
    if out_of_line(pool, holder) then
        log(pool, 'leave', holder)
    end
    if pool.used > 0 and redis.call('ZREM', pool.leases, holder) == 1 then
        pool.used = pool.used - 1
        log(pool, 'release', holder)
        hand_over(pool)
    end
end

-- Another lease, or more time in line. held: 1 what the store lost and gave to nobody, its holder may have
-- back; 2 it is told of a slot that a process gave itself while the store was away.
local function renew(met, holder, line_us, held)
    local pool, quota = met.pool, met.quota
    if redis.call('ZSCORE', pool.leases, holder) then
        local until_us = now + pool.limit.lease_us
        lease(pool.leases, holder, until_us, math.ceil(pool.limit.lease_us / 1000) + HOUR_MS)
        if quota then
            quota.used = quota.used + lease(quota.key, holder, until_us, math.ceil(pool.limit.lease_us / 1000) + HOUR_MS)
        end
        return HELD
    end
    if held == 2 or (held == 1 and now < marker.grants_from) then
        grant(pool, quota, holder, now + pool.limit.lease_us, 'again')
        return HELD
    end
    if line_us > 0 and redis.call('ZSCORE', pool.alive, holder) then
        redis.call('ZADD', pool.alive, now + line_us, holder)
        hand_over(pool)
        return redis.call('ZSCORE', pool.leases, holder) and HELD or WAITING
    end
    return GONE
end

local function write_pools()
    for key, pool in pairs(pools) do
        if pool.dirty then
            redis.call('SET', key, struct.pack('<ddd', pool.version, pool.capacity, pool.fence), 'PX', DAY_MS)
        end
        if pool.logged then
            redis.call('PEXPIRE', pool.events, HOUR_MS)
        end
    end
end
