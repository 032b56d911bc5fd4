-- pool: policy/limits/pool.py in Lua; the contract suite compares the two. The rare cases (waiters, expired
-- leases, slots reserved for a class) are in wait_queue.lua.
--
-- A holder is a text with fields separated by \31: lease id, process, class, digest and capacity of its
-- tenant's quota, tenant, job. It is the member of every sorted set here. The sets are authoritative for
-- holders. first_end and waiting only save reads: before first_end no lease expires, and with waiting 0 the
-- queue is empty.
--
-- A tenant's quota has no set. Its `used` counts the leases of all pools that name it, in the run that adds
-- or removes one. An expired lease stays counted, so `used` is never too low, and exact until first_end. If
-- the quota seems full after that, or its field is missing or damaged, wait_queue.lua counts it anew.

local NEVER = 9007199254740991
local TAKEN, IN_QUEUE = 0, -1
local FULL, NO_QUOTA, LEARNING = 3, 2, 5

local function pool_pack(pool)
    return struct.pack(POOL, pool.version, pool.capacity, pool.fence, pool.first_end, pool.waiting, pool.extended_at)
end

local function pool_read(stored, limit, new_version)
    local pool = { pack = pool_pack, dirty = false, name = false, leases = false, limit = false, used = false,
        is_pool = true }
    if stored and #stored == struct.size(POOL) then
        pool.version, pool.capacity, pool.fence, pool.first_end, pool.waiting, pool.extended_at =
            struct.unpack(POOL, stored)
        if pool.capacity >= min(1, limit.capacity) and pool.capacity <= MOST_SLOTS and is_valid(pool.version)
            and is_valid(pool.fence) and is_valid(pool.first_end) and is_valid(pool.extended_at) then
            pool.extended_at = math.min(pool.extended_at, now)
            return pool
        end
    end
    pool.version, pool.capacity, pool.fence, pool.first_end, pool.waiting, pool.extended_at, pool.dirty =
        new_version, limit.capacity, now, 0, 1, 0, true
    return pool
end

local function quota_pack(quota)
    return struct.pack(QUOTA, quota.used or -1, quota.first_end)
end

local function quota_read(stored)
    local quota = { pack = quota_pack, used = false, first_end = 0, dirty = false, name = false, capacity = 0,
        is_counted = false }
    if stored and #stored == struct.size(QUOTA) then
        local used, first_end = struct.unpack(QUOTA, stored)
        if used >= 0 and used <= MOST_SLOTS and first_end >= 0 and first_end <= now + LONGEST_LEASE_US then
            quota.used, quota.first_end = used, first_end
        end
    end
    return quota
end

-- Remove expired leases and count the others.
local function count_leases(pool)
    if now < marker.reap_from then
        lazy().shorten_leases(pool)
    elseif pool.first_end <= now then
        lazy().reap(pool)
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
            lazy().recount_quotas(pool)
        end
        if pool.waiting > 0 then
            lazy().load_queue(pool)
        end
    end
    local version = version_of(plan.pool_place, plan.last)
    if is_newer(version, pool.version) then
        pool.version, pool.capacity, pool.dirty = version, plan.pool.capacity, true
    end
    pool.limit = plan.pool
    return pool
end

local function quota_at(plan)
    local quota = state_at(plan.quota_place, plan.last, quota_read)
    quota.capacity = plan.quota
    if quota_counts or not quota.used then
        lazy().count(quota)
    end
    return quota
end

-- Return pool and quota of a plan; nil if it has none.
local function slots_at(plan)
    local pool = plan.pool and pool_at(plan)
    local quota = plan.quota and quota_at(plan)
    return pool, quota
end

-- Return the limit that blocks a grant, or 0.
local function blocking_limit(pool, quota, class)
    if quota and quota.used >= quota.capacity then
        if quota.first_end <= now or now < marker.reap_from then
            lazy().count(quota)
        end
        if quota.used >= quota.capacity then
            return NO_QUOTA
        end
    end
    count_leases(pool)
    if pool.used >= pool.capacity then
        return FULL
    end
    if pool.limit.minimum and pool.capacity - pool.used - lazy().reserved_for_others(pool, class) <= 0 then
        return FULL
    end
    return 0
end

-- Extend the time to live of the set and its cell beyond every lease in it.
local function extend_ttl(pool)
    local last = redis.call('ZRANGE', pool.leases, -1, -1, 'WITHSCORES')
    redis.call('PEXPIRE', pool.leases, max(0, math.ceil((tonumber(last[2]) - now) / 1000)) + HOUR_MS)
    redis.call('PEXPIRE', cell_key, CELL_MS)
    pool.extended_at, pool.dirty = now, true
end

local function add_lease(pool, quota, holder, until_us)
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
    -- If the set was empty, or was not counted, it may be a new key.
    if now > pool.extended_at + TOUCH_US or until_us > now + LONG_US or not pool.used or pool.used == added then
        extend_ttl(pool)
    end
    return added
end

local function grant(pool, quota, holder, until_us, kind)
    local added = add_lease(pool, quota, holder, until_us)
    -- The time rises faster than grants can be made, so the fence follows it. It is stored only with fencing, where it
    -- must rise even if the clock is set back.
    pool.fence = math.max(pool.fence + 1, now + fences)
    fences = fences + 1
    pool.dirty = pool.dirty or pool.limit.is_fenced
    if events > 0 or kind == 'promote' or kind == 'again' then
        lazy().log(pool, added == 1 and kind or 'claim', holder)
    end
    return pool.fence
end

-- Take a slot. Return TAKEN and the fence; IN_QUEUE; or the limit that blocks it and the longest wait.
local function take_slot(pool, quota, limit, holder, since_us, wait_us_left)
    if now < marker.grants_from then
        return lazy().take_while_learning(pool, quota, limit, holder)
    end
    local blocked_by = blocking_limit(pool, quota, 0)
    if blocked_by == 0 and pool.waiting == 0 then
        return TAKEN, 0, grant(pool, quota, holder, now + limit.lease_us, 'grant')
    end
    return lazy().take_slot(pool, quota, limit, holder, since_us, wait_us_left, blocked_by)
end

local freed_places = 0  -- how many places tenants at their quota have freed in this run

local function remove_lease(pool, quota, holder)
    if pool.first_end <= now then
        count_leases(pool)
    end
    if redis.call('ZREM', pool.leases, holder) == 0 then
        return false
    end
    if pool.used then
        pool.used = pool.used - 1
    end
    if quota then
        freed_places = freed_places + (quota.used >= quota.capacity and 1 or 0)
        quota.used, quota.dirty = math.max(0, quota.used - 1), true
    end
    return true
end

-- Release the slot of a call. Return false if its lease had expired.
local function release_slot(pool, quota, holder)
    local had_lease = remove_lease(pool, quota, holder)
    if events > 0 or not had_lease then
        lazy().log(pool, had_lease and 'release' or 'late', holder)
    end
    if pool.waiting > 0 then
        lazy().release_place(pool, holder)
    end
    return had_lease
end
