-- pool: policy/gate/pool.py in Lua; the contract suite holds the two together. Here what each call needs; what
-- is rare (somebody waits, a lease has ended, a class has slots of its own) stands in line.lua.
--
-- A holder is one text, its fields apart by \31: lease id, process, class, digest and capacity of its tenant's
-- quota, tenant, job. It is the member of every sorted set here. The sets alone say who holds what; first_end
-- and waiting only tell when there is no need to look: before first_end no lease ends, and with waiting 0
-- nobody stands in line.

local NEVER = 9007199254740991
local TAKEN, IN_LINE = 0, -1
local FULL, NO_QUOTA, LEARNING = 3, 2, 5

local function pool_pack(pool)
    return struct.pack(POOL, pool.version, pool.capacity, pool.fence, pool.first_end, pool.waiting, pool.touched)
end

local function pool_read(kept, limit, version_given)
    local pool = { pack = pool_pack, dirty = false, name = false, leases = false, limit = false, used = false,
        is_pool = true }
    if kept and #kept == struct.size(POOL) then
        pool.version, pool.capacity, pool.fence, pool.first_end, pool.waiting, pool.touched = struct.unpack(POOL, kept)
        if pool.capacity <= MOST_SLOTS and sound(pool.version) and sound(pool.fence) and sound(pool.first_end)
            and sound(pool.touched) then
            pool.touched = math.min(pool.touched, now)
            return pool
        end
    end
    pool.version, pool.capacity, pool.fence, pool.first_end, pool.waiting, pool.touched, pool.dirty =
        version_given, limit.capacity, now, 0, 1, 0, true
    return pool
end

local function quota_pack(quota)
    return struct.pack(QUOTA, quota.first_end, quota.touched)
end

local function quota_read(kept)
    local quota = { pack = quota_pack, first_end = 0, touched = 0, dirty = false, name = false, leases = false,
        capacity = 0, used = false }
    if kept and #kept == struct.size(QUOTA) then
        local first_end, touched = struct.unpack(QUOTA, kept)
        if sound(first_end) and sound(touched) then
            quota.first_end, quota.touched = first_end, math.min(touched, now)
        end
    end
    return quota
end

-- Leases that have ended are out, and how many there are is known.
local function settled(set)
    if now < marker.reap_from then
        rare().cut(set)
    elseif set.first_end <= now then
        rare().reap(set)
    end
    if not set.used then
        set.used = redis.call('ZCARD', set.leases)
    end
end

local function pool_at(plan)
    local pool = state_at(plan.pool_place, plan.last, pool_read, plan.pool)
    if not pool.leases then
        pool.leases = KEYS[cell_at + (plan.quota and 2 or 1)]
        pool.limit = plan.pool
        if pool.waiting > 0 then
            rare().meet_line(pool)
        end
    end
    local version = version_of(plan.pool_place, plan.last)
    if newer(version, pool.version) then
        pool.version, pool.capacity, pool.dirty = version, plan.pool.capacity, true
    end
    pool.limit = plan.pool
    return pool
end

local function quota_at(plan)
    local quota = state_at(plan.quota_place, plan.last, quota_read)
    if not quota.leases then
        quota.leases = KEYS[cell_at + 1]
    end
    quota.capacity = plan.quota
    return quota
end

-- Pool and quota of a plan, nil where it has none.
local function slots_at(plan)
    local pool = plan.pool and pool_at(plan)
    local quota = plan.quota and quota_at(plan)
    return pool, quota
end

-- 0, or the part of the gate that is in the way.
local function in_the_way(pool, quota, class)
    if quota then
        settled(quota)
        if quota.used >= quota.capacity then
            return NO_QUOTA
        end
    end
    settled(pool)
    if pool.used >= pool.capacity then
        return FULL
    end
    if pool.limit.minimum and pool.capacity - pool.used - rare().kept_for_others(pool, class) <= 0 then
        return FULL
    end
    return 0
end

-- The key outlives every lease in it, and its cell does.
local function outlive(set)
    local last = redis.call('ZRANGE', set.leases, -1, -1, 'WITHSCORES')
    redis.call('PEXPIRE', set.leases, max(0, math.ceil((tonumber(last[2]) - now) / 1000)) + HOUR_MS)
    redis.call('PEXPIRE', cell_key, CELL_MS)
    set.touched, set.dirty = now, true
end

local function lease(set, holder, until_us)
    local added = redis.call('ZADD', set.leases, until_us, holder)
    if set.used then
        set.used = set.used + added
    end
    if until_us < set.first_end then
        set.first_end, set.dirty = until_us, true
    end
    -- Where nobody was in it, or nobody looked, it may be a new key.
    if now > set.touched + TOUCH_US or until_us > now + LONG_US or not set.used or set.used == added then
        outlive(set)
    end
    return added
end

local function grant(pool, quota, holder, until_us, kind)
    local added = lease(pool, holder, until_us)
    if quota then
        lease(quota, holder, until_us)
    end
    -- The time grows by itself, and faster than grants can be made: so the fence need not be kept for each of
    -- them, but where it must grow even if the clock is set back.
    pool.fence = math.max(pool.fence + 1, now + fences)
    fences = fences + 1
    pool.dirty = pool.dirty or pool.limit.fenced
    if events > 0 or kind == 'promote' or kind == 'again' then
        rare().log(pool, added == 1 and kind or 'claim', holder)
    end
    return pool.fence
end

-- A slot for the holder: TAKEN and its fence; IN_LINE; or what is in the way and for how long at most.
local function take(pool, quota, limit, holder, since_us, line_us)
    if now < marker.grants_from then
        return rare().take_while_learning(pool, quota, limit, holder)
    end
    local hindrance = in_the_way(pool, quota, 0)
    if hindrance == 0 and pool.waiting == 0 then
        return TAKEN, 0, grant(pool, quota, holder, now + limit.lease_us, 'grant')
    end
    return rare().take(pool, quota, limit, holder, since_us, line_us, hindrance)
end

-- A tenant's quota without slots of its own.
local function take_quota(quota, holder)
    settled(quota)
    if quota.used >= quota.capacity and not redis.call('ZSCORE', quota.leases, holder) then
        return NO_QUOTA, rare().first_end(quota), 0
    end
    lease(quota, holder, now + lease_us)
    return TAKEN, 0, 0
end

local freed = 0  -- places of tenants who were at their quotas, in this run

local function drop(set, holder)
    if set.first_end <= now then
        settled(set)
    end
    if redis.call('ZREM', set.leases, holder) == 0 then
        return false
    end
    if set.used then
        set.used = set.used - 1
    end
    if not set.is_pool and not (set.used and set.used + 1 < set.capacity) then
        freed = freed + 1
    end
    return true
end

-- The call is over. False: its lease had ended before.
local function give_back(pool, quota, holder)
    if quota and pool and pool.waiting > 0 then
        settled(quota)
    end
    local had = quota and drop(quota, holder)
    if not pool then
        return had
    end
    had = drop(pool, holder)
    if events > 0 or not had then
        rare().log(pool, had and 'release' or 'late', holder)
    end
    if pool.waiting > 0 then
        rare().pass_on(pool, holder)
    end
    return had
end
