-- pool: policy/limits/pool.py in Lua; the contract suite holds the two together. Here what each call needs; what
-- is rare (somebody waits, a lease has ended, a class has slots of its own) stands in line.lua.
--
-- A holder is one text, its fields apart by \31: lease id, process, class, digest and capacity of its tenant's
-- quota, tenant, job. It is the member of every sorted set here. The sets alone say who holds what; first_end
-- and waiting only tell when there is no need to look: before first_end no lease ends, and with waiting 0
-- nobody stands in line.
--
-- A tenant's quota has no set: how many leases of all pools name it is counted in the run that adds or removes
-- one. A lease that ends by time stays counted, so there are never more live ones than `used`, and just as many
-- until first_end. Where the quota seems full after that, or its field is missing or damaged, line.lua counts.

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
        if pool.capacity >= min(1, limit.capacity) and pool.capacity <= MOST_SLOTS and sound(pool.version)
            and sound(pool.fence) and sound(pool.first_end) and sound(pool.touched) then
            pool.touched = math.min(pool.touched, now)
            return pool
        end
    end
    pool.version, pool.capacity, pool.fence, pool.first_end, pool.waiting, pool.touched, pool.dirty =
        version_given, limit.capacity, now, 0, 1, 0, true
    return pool
end

local function quota_pack(quota)
    return struct.pack(QUOTA, quota.used or -1, quota.first_end)
end

local function quota_read(kept)
    local quota = { pack = quota_pack, used = false, first_end = 0, dirty = false, name = false, capacity = 0,
        is_counted = false }
    if kept and #kept == struct.size(QUOTA) then
        local used, first_end = struct.unpack(QUOTA, kept)
        if used >= 0 and used <= MOST_SLOTS and first_end >= 0 and first_end <= now + LONGEST_LEASE_US then
            quota.used, quota.first_end = used, first_end
        end
    end
    return quota
end

-- Leases that have ended are out, and how many there are is known.
local function settled(pool)
    if now < marker.reap_from then
        rare().cut(pool)
    elseif pool.first_end <= now then
        rare().reap(pool)
    end
    if not pool.used then
        pool.used = redis.call('ZCARD', pool.leases)
    end
end

local function pool_at(plan)
    local pool = state_at(plan.pool_place, plan.last, pool_read, plan.pool)
    if not pool.leases then
        pool.leases = leases_key
        pool.limit = plan.pool
        if pool.dirty then
            rare().recollect(pool)
        end
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
    quota.capacity = plan.quota
    if census or not quota.used then
        rare().count(quota)
    end
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
    if quota and quota.used >= quota.capacity then
        if quota.first_end <= now or now < marker.reap_from then
            rare().count(quota)
        end
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
local function outlive(pool)
    local last = redis.call('ZRANGE', pool.leases, -1, -1, 'WITHSCORES')
    redis.call('PEXPIRE', pool.leases, max(0, math.ceil((tonumber(last[2]) - now) / 1000)) + HOUR_MS)
    redis.call('PEXPIRE', cell_key, CELL_MS)
    pool.touched, pool.dirty = now, true
end

local function lease(pool, quota, holder, until_us)
    local added = redis.call('ZADD', pool.leases, until_us, holder)
    if quota then
        quota.first_end = quota.used == 0 and until_us or math.min(until_us, quota.first_end)
        quota.used, quota.dirty = quota.used + added, true
    end
    if pool.used then
        pool.used = pool.used + added
    end
    if until_us < pool.first_end then
        pool.first_end, pool.dirty = until_us, true
    end
    -- Where nobody was in it, or nobody looked, it may be a new key.
    if now > pool.touched + TOUCH_US or until_us > now + LONG_US or not pool.used or pool.used == added then
        outlive(pool)
    end
    return added
end

local function grant(pool, quota, holder, until_us, kind)
    local added = lease(pool, quota, holder, until_us)
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

local freed = 0  -- places of tenants who were at their quotas, in this run

local function drop(pool, quota, holder)
    if pool.first_end <= now then
        settled(pool)
    end
    if redis.call('ZREM', pool.leases, holder) == 0 then
        return false
    end
    if pool.used then
        pool.used = pool.used - 1
    end
    if quota then
        freed = freed + (quota.used >= quota.capacity and 1 or 0)
        quota.used, quota.dirty = math.max(0, quota.used - 1), true
    end
    return true
end

-- The call is over. False: its lease had ended before.
local function give_back(pool, quota, holder)
    local had = drop(pool, quota, holder)
    if events > 0 or not had then
        rare().log(pool, had and 'release' or 'late', holder)
    end
    if pool.waiting > 0 then
        rare().pass_on(pool, holder)
    end
    return had
end
