-- wait_queue: the queue for slots, and the other rare cases of slots. Its functions are created when first needed.

local function make_wait_queue(functions)
    local SCANNED = 64
    local GONE, HELD, WAITING = 0, 1, 2

    -- Return a field of a holder, see pool.lua; empty if there is none.
    local function field(holder, number)
        local from = 1
        for _ = 2, number do
            from = (string.find(holder, '\31', from, true) or #holder) + 1
        end
        return string.sub(holder, from, (string.find(holder, '\31', from, true) or 0) - 1)
    end

    -- Log an event. u: the end of a lease that expired. tests/support/pool_verdict.py reads the log.
    function functions.log(pool, kind, holder, until_us)
        if not pool.used then
            pool.used = redis.call('ZCARD', pool.leases)
        end
        local key = string.sub(pool.leases, 1, -2) .. 'e'
        redis.call('XADD', key, 'MAXLEN', '~', math.max(events, 100), '*', 'k', kind, 't', now,
            'n', pool.used, 'c', pool.capacity, 'h', holder, 'u', until_us or 0)
        if not pool.logged then
            redis.call('PEXPIRE', key, HOUR_MS)
            pool.logged = true
        end
    end

    -- ---- quotas -------------------------------------------------------------------------------------

    local function set_from_counts(quota)
        local entry = quota_counts[quota.name]
        quota.used, quota.first_end = entry and entry.used or 0, entry and entry.first_end or 0
        quota.is_counted, quota.dirty = true, true
    end

    -- Count the live leases of all pools of the cell by quota, with the first end. The counts do not include later
    -- changes, so the quotas that this run has used are set from them at once.
    local function count_quotas()
        local sets = {}
        for _, state in pairs(states) do
            if state.is_pool and state.leases then
                sets[state.leases] = true
            end
        end
        local cursor, fields_of_pools = '0', nil
        repeat
            cursor, fields_of_pools = unpack(redis.call('HSCAN', cell_key, cursor, 'MATCH', 'p*', 'COUNT', 1000))
            for i = 1, #fields_of_pools, 2 do
                sets[sub(cell_key, 1, -2) .. 'p:' .. sub(fields_of_pools[i], 2) .. ':l'] = true
            end
        until cursor == '0'
        quota_counts = {}
        local from_us = now < marker.reap_from and 0 or now
        for key in pairs(sets) do
            local leases = redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES')  -- a key of another type holds none
            for i = 1, #leases, 2 do
                local name, until_us = 'q' .. field(leases[i], 4), tonumber(leases[i + 1])
                if until_us > from_us and until_us <= now + LONGEST_LEASE_US then
                    local entry = quota_counts[name] or { used = 0, first_end = until_us }
                    entry.used, entry.first_end = entry.used + 1, math.min(entry.first_end, until_us)
                    quota_counts[name] = entry
                end
            end
        end
        for _, state in pairs(states) do
            if state.pack == quota_pack then
                set_from_counts(state)
            end
        end
    end

    -- Count a quota, at most once per run: later changes update the count.
    function functions.count(quota)
        if not quota_counts then
            count_quotas()
        end
        if not quota.is_counted then
            set_from_counts(quota)
        end
    end

    local function quota_of(holder)
        local digest = field(holder, 4)
        if #digest ~= NAME - 1 then
            return nil
        end
        local name = 'q' .. digest
        local quota = states[name]
        if not quota then
            quota = quota_read(redis.call('HGET', cell_key, name))
            quota.name = name
            states[name] = quota
        end
        quota.capacity = tonumber(field(holder, 5)) or 0
        if quota_counts or not quota.used then
            functions.count(quota)
        end
        return quota
    end

    -- ---- leases -------------------------------------------------------------------------------------

    -- Remove expired leases, and read when the next one may expire.
    function functions.reap(pool)
        local latest = string.format('(%.0f', now + LONGEST_LEASE_US)  -- no lease ends later
        redis.call('ZREMRANGEBYSCORE', pool.leases, latest, '+inf')
        pool.used = redis.call('ZCARD', pool.leases)
        local expired = redis.call('ZRANGEBYSCORE', pool.leases, '-inf', now, 'WITHSCORES')
        for i = 1, #expired, 2 do
            redis.call('ZREM', pool.leases, expired[i])
            pool.used = pool.used - 1
            functions.log(pool, 'expire', expired[i], expired[i + 1])
        end
        local first = redis.call('ZRANGE', pool.leases, 0, 0, 'WITHSCORES')
        pool.first_end, pool.dirty = first[2] and tonumber(first[2]) or NEVER, true
    end

    -- Count the quotas from the leases, since the cell has no field for the pool.
    function functions.recount_quotas(pool)
        local holders = redis.call('ZRANGE', pool.leases, 0, -1)
        if holders[1] then
            count_quotas()
        end
        for _, holder in ipairs(holders) do
            quota_of(holder)
        end
    end

    -- After the clock was set, shorten every lease that ends later than one that starts now.
    function functions.shorten_leases(pool)
        if pool.is_shortened then
            return
        end
        pool.is_shortened = true
        local most_us = now + pool.limit.lease_us
        local late_leases = redis.call('ZRANGEBYSCORE', pool.leases, '(' .. string.format('%.0f', most_us), '+inf')
        for _, holder in ipairs(late_leases) do
            redis.call('ZADD', pool.leases, most_us, holder)
            local quota = quota_of(holder)
            if quota then
                quota.first_end, quota.dirty = 0, true
            end
        end
        pool.first_end, pool.dirty = 0, true
    end

    -- Return when the first of the blocking leases may expire: the latest time for another request.
    local function first_end(pool, quota)
        if quota then
            return quota.used > 0 and math.max(1000, quota.first_end - now) or 1000000
        end
        local first = redis.call('ZRANGE', pool.leases, 0, 0, 'WITHSCORES')
        return first[2] and math.max(1000, tonumber(first[2]) - now) or 1000000
    end

    function functions.reserved_for_others(pool, class)
        local used = {}
        for _, holder in ipairs(redis.call('ZRANGE', pool.leases, 0, -1)) do
            local number = tonumber(field(holder, 3)) or 0
            used[number] = (used[number] or 0) + 1
        end
        local reserved = 0
        for other, least in ipairs(pool.limit.minimum) do
            if other ~= class then
                reserved = reserved + math.max(0, least - (used[other] or 0))
            end
        end
        return reserved
    end

    -- ---- the queue -----------------------------------------------------------------------------------

    function functions.name_queue(pool)
        local base = string.sub(pool.leases, 1, -2)
        pool.alive, pool.queue = base .. 'a', base .. 'w'
    end

    -- Count the waiters, without those that have not renewed in time.
    function functions.load_queue(pool)
        functions.name_queue(pool)
        if now >= marker.reap_from then
            for _, holder in ipairs(redis.call('ZRANGEBYSCORE', pool.alive, '-inf', now)) do
                redis.call('ZREM', pool.alive, holder)
                redis.call('ZREM', pool.queue .. field(holder, 3), holder)
                functions.log(pool, 'absent', holder)
            end
        end
        pool.queue_length = redis.call('ZCARD', pool.alive)
        if pool.queue_length == 0 then
            pool.waiting, pool.dirty = 0, true
        end
    end

    local function remove_from_queue(pool, holder)
        if pool.waiting > 0 and redis.call('ZREM', pool.alive, holder) == 1 then
            redis.call('ZREM', pool.queue .. field(holder, 3), holder)
            pool.queue_length, pool.skipped_counts = pool.queue_length - 1, nil
            return true
        end
        return false
    end

    -- Return the first waiter of a class that may take a slot, since when it waits, and its quota. `skipped_counts`
    -- counts for each class the waiters before it that their tenants' quotas block. This run does not check them again
    -- until a place of a quota is freed.
    local function first_eligible(pool, class, skipped_counts)
        for from = skipped_counts[class], SCANNED - 1 do
            local waiter = redis.call('ZRANGE', pool.queue .. class, from, from, 'WITHSCORES')
            if not waiter[1] then
                return nil
            end
            local quota = quota_of(waiter[1])
            local blocked_by = blocking_limit(pool, quota, class)
            if blocked_by == 0 then
                return waiter[1], tonumber(waiter[2]), quota
            elseif blocked_by ~= NO_QUOTA then
                return nil
            end
            skipped_counts[class] = from + 1
        end
    end

    local function next_waiter(pool, skipped_counts)
        local best, best_since, best_quota, best_class
        local promoted = false
        for class = 1, pool.limit.classes do
            skipped_counts[class] = skipped_counts[class] or 0
            local holder, since_us, quota = first_eligible(pool, class, skipped_counts)
            if holder then
                local is_late = since_us <= now - pool.limit.promote_us
                if not best or (is_late and (not promoted or since_us < best_since)) then
                    best, best_since, best_quota, best_class = holder, since_us, quota, class
                    promoted = promoted or is_late
                end
            end
        end
        return best, best_quota, promoted, best_class
    end

    -- Grant free slots to the waiters in order, and notify each process but the caller's. After a data loss
    -- nothing is granted, because a slot that seems free may have a holder that has not renewed yet.
    function functions.grant_waiters(pool, caller)
        if now < marker.grants_from then
            return false
        end
        count_leases(pool)
        local caller_granted = false
        local skipped_counts = pool.skipped_at == freed_places and pool.skipped_counts or {}
        while pool.queue_length > 0 and pool.used < pool.capacity do
            local holder, quota, promoted, class = next_waiter(pool, skipped_counts)
            if not holder then
                break
            end
            if not remove_from_queue(pool, holder) then
                -- The set of live waiters was lost and the queue was not, as if keys were deleted one by one.
                -- No call waits for this slot. Without this removal the loop would not end.
                redis.call('ZREM', pool.queue .. class, holder)
            elseif holder == caller then
                caller_granted = true
                grant(pool, quota, holder, now + pool.limit.lease_us, promoted and 'promote' or 'grant')
            else
                grant(pool, quota, holder, now + pool.limit.claim_us, promoted and 'promote' or 'hand')
                redis.call('PUBLISH', PREFIX .. 'g:' .. field(holder, 2), field(holder, 1))
                granted_ids = granted_ids .. string.sub(holder, 1, 16)
            end
        end
        if pool.queue_length == 0 then
            pool.waiting, pool.dirty = 0, true
        end
        -- Still true: the waiters that were granted a slot stood behind the skipped ones.
        pool.skipped_counts, pool.skipped_at = skipped_counts, freed_places
        return caller_granted
    end

    local function join_queue(pool, holder, since_us, wait_us_left)
        if pool.waiting == 0 then
            functions.name_queue(pool)
            pool.waiting, pool.queue_length, pool.dirty = 1, 0, true
        end
        local class = field(holder, 3)
        if redis.call('ZADD', pool.alive, now + math.max(wait_us_left, 1), holder) == 1 then
            pool.queue_length = pool.queue_length + 1
            if pool.tenants then
                pool.tenants[field(holder, 6)] = true
            end
            redis.call('ZADD', pool.queue .. class, 'LT', since_us, holder)
            local skipped_counts = pool.skipped_counts and pool.skipped_counts[tonumber(class)]
            if skipped_counts and redis.call('ZRANK', pool.queue .. class, holder) < skipped_counts then
                pool.skipped_counts = nil
            end
            if wait_us_left > 0 and events > 0 then
                functions.log(pool, 'wait', holder)
            end
        end
        local ttl_ms = math.ceil(wait_us_left / 1000) + HOUR_MS
        redis.call('PEXPIRE', pool.alive, ttl_ms)
        redis.call('PEXPIRE', pool.queue .. class, ttl_ms)
    end

    -- Beyond the bound each tenant has one place, up to twice the bound. Waiters are counted once per run.
    local function is_queue_full(pool, limit, holder)
        if pool.waiting == 0 or pool.queue_length >= 2 * limit.max_waiters then
            return true
        end
        if not pool.tenants then
            pool.tenants = {}
            for _, waiter in ipairs(redis.call('ZRANGE', pool.alive, 0, -1)) do
                pool.tenants[field(waiter, 6)] = true
            end
        end
        return pool.tenants[field(holder, 6)]
    end

    local function claim(pool, quota, limit, holder)
        if not redis.call('ZSCORE', pool.leases, holder) then
            return nil
        end
        return grant(pool, quota, holder, now + limit.lease_us, 'claim')
    end

    -- After a data loss only a holder with a lease retains its slot. A refused call leaves the queue, too.
    function functions.take_while_learning(pool, quota, limit, holder)
        count_leases(pool)
        local fence = claim(pool, quota, limit, holder)
        if fence then
            return TAKEN, 0, fence
        end
        if remove_from_queue(pool, holder) and events > 0 then
            functions.log(pool, 'leave', holder)
        end
        return LEARNING, marker.grants_from - now, 0
    end

    function functions.take_slot(pool, quota, limit, holder, since_us, wait_us_left, blocked_by)
        count_leases(pool)  -- not counted yet if the quota blocked; an expired lease cannot be claimed
        local fence = claim(pool, quota, limit, holder)
        if fence then
            return TAKEN, 0, fence
        end
        if limit.minimum then  -- the first check did not know the class
            blocked_by = blocking_limit(pool, quota, tonumber(field(holder, 3)))
            if blocked_by == 0 and pool.waiting == 0 then
                return TAKEN, 0, grant(pool, quota, holder, now + limit.lease_us, 'grant')
            end
        end
        local end_us = first_end(pool, blocked_by == NO_QUOTA and quota)
        local queue_length = pool.waiting > 0 and pool.queue_length or 0
        if queue_length >= limit.max_waiters and not (queue_length > 0 and redis.call('ZSCORE', pool.alive, holder))
            and is_queue_full(pool, limit, holder) then
            return blocked_by == NO_QUOTA and NO_QUOTA or FULL, end_us, 0
        end
        join_queue(pool, holder, since_us, wait_us_left)
        if functions.grant_waiters(pool, holder) then
            return TAKEN, 0, pool.fence
        end
        if blocking_limit(pool, quota, tonumber(field(holder, 3))) == 0 then  -- the waiters before it may not take one
            local skipped_counts = pool.skipped_counts
            remove_from_queue(pool, holder)
            pool.skipped_counts = skipped_counts  -- it was not one of the skipped waiters
            return TAKEN, 0, grant(pool, quota, holder, now + limit.lease_us, 'grant')
        end
        if wait_us_left <= 0 then
            remove_from_queue(pool, holder)
            return blocked_by == NO_QUOTA and NO_QUOTA or FULL, end_us, 0
        end
        return IN_QUEUE, math.min(end_us, 1000000), 0
    end

    -- Remove the holder of a finished call from the queue, too, and grant its slot to the next waiter.
    function functions.release_place(pool, holder)
        count_leases(pool)
        remove_from_queue(pool, holder)
        functions.grant_waiters(pool)
    end

    -- Give up a place in the queue, and a slot that was granted meanwhile: the call is not made.
    function functions.leave_queue(pool, quota, holder)
        if holder == '' or not pool then
            return
        end
        count_leases(pool)
        if remove_from_queue(pool, holder) and events > 0 then
            functions.log(pool, 'leave', holder)
        end
        if pool.used > 0 and remove_lease(pool, quota, holder) then
            if events > 0 then
                functions.log(pool, 'release', holder)
            end
            if pool.waiting > 0 then
                functions.grant_waiters(pool)
            end
        end
    end

    -- Renew a lease or a place in the queue. retake: 1 the holder may retake a slot that the store lost and has
    -- not granted again; 2 the process took this slot itself while the store was unavailable.
    function functions.renew(pool, quota, holder, wait_us_left, retake)
        count_leases(pool)
        local until_us = now + pool.limit.lease_us
        if redis.call('ZSCORE', pool.leases, holder) then
            add_lease(pool, quota, holder, until_us)
            return HELD
        end
        if retake == 2 or (retake == 1 and now < marker.grants_from) then
            -- Otherwise the queue would grant it a second slot, with a lease as short as a claim.
            remove_from_queue(pool, holder)
            grant(pool, quota, holder, until_us, 'again')
            return HELD
        end
        if wait_us_left > 0 and pool.waiting > 0 and redis.call('ZSCORE', pool.alive, holder) then
            redis.call('ZADD', pool.alive, now + wait_us_left, holder)
            functions.grant_waiters(pool)
            return redis.call('ZSCORE', pool.leases, holder) and HELD or WAITING
        end
        return GONE
    end
end
