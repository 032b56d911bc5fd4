-- partner: a pool and a quota with one set of leases for both (pool.lua), and how they part. Made when first needed.

local function make_partners(found)
    -- One of the fields of a holder, see pool.lua.
    function found.field(holder, number)
        local from = 1
        for _ = 2, number do
            from = string.find(holder, '\31', from, true) + 1
        end
        local to = string.find(holder, '\31', from, true)
        return string.sub(holder, from, to and to - 1)
    end

    -- The key of the leases of a pool or a quota, by its name.
    function found.leases_of(name)
        local kind, digest = string.sub(name, 1, 1), string.sub(name, 2)
        return string.sub(cell_key, 1, -2) .. kind .. ':' .. digest .. (kind == 'p' and ':l' or '')
    end

    function found.quota_named(name)
        local quota = states[name]
        if not quota then
            quota = quota_read(redis.call('HGET', cell_key, name))
            quota.name = name
            states[name] = quota
        end
        return quota
    end

    -- nil where nothing of it is kept: no plan is at hand to make one.
    local function pool_named(name)
        local pool = states[name]
        local kept = not pool and redis.call('HGET', cell_key, name)
        if kept then
            pool = pool_read(kept, {})  -- of its limit only what is kept counts here
            pool.name = name
            states[name] = pool
        end
        return pool
    end

    -- Each has a set of its own from now on; what the pool's holds is in the quota's, too.
    local function part(pool, quota)
        quota.within, quota.leases, quota.used = false, found.leases_of(quota.name), false
        if redis.call('ZUNIONSTORE', quota.leases, 1, found.leases_of(pool.name)) > 0 then
            outlive(quota)
        end
        quota.first_end = pool.first_end
        pool.partner, pool.dirty, quota.partner, quota.dirty = ALONE, true, ALONE, true
    end

    local function set_apart(state)
        if state.partner and state.partner ~= ALONE then
            local other = (state.is_pool and found.quota_named or pool_named)(state.partner)
            if other and other.partner == state.name then
                part(state.is_pool and state or other, state.is_pool and other or state)
            end
        end
        if state.partner ~= ALONE then
            state.partner, state.dirty = ALONE, true
        end
    end

    -- The cell is new and the pool's set is not: what its leases say of quotas is all that is known of these.
    local function recollect(pool)
        local leases = redis.call('ZRANGE', pool.leases, 0, -1, 'WITHSCORES')
        for i = 1, #leases, 2 do
            local digest = found.field(leases[i], 4)
            if digest ~= '' then
                local key = found.leases_of('q' .. digest)
                redis.call('ZADD', key, leases[i + 1], leases[i])
                redis.call('PEXPIRE', key, max(0, math.ceil((tonumber(leases[i + 1]) - now) / 1000)) + HOUR_MS)
                local quota = states['q' .. digest]
                if quota then
                    quota.first_end, quota.used = 0, false
                end
            end
        end
    end

    -- Makes partners of two that are new, and has each alone where it was not yet.
    function found.introduce(pool, quota)
        if pool and not pool.partner and redis.call('EXISTS', pool.leases) == 1 then
            recollect(pool)
        elseif pool and quota and not pool.partner and not quota.partner
            and redis.call('EXISTS', quota.leases) == 0 then
            pool.partner, quota.partner, quota.within = quota.name, pool.name, pool
            pool.dirty, quota.dirty = true, true
            return
        end
        if pool then
            set_apart(pool)
        end
        if quota then
            set_apart(quota)
        end
    end
end
