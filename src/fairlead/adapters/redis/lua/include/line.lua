-- line: who waits for a slot, and all that is rare about slots. Made when first needed.

local function make_line(found)
    local SCANNED = 64
    local GONE, HELD, WAITING = 0, 1, 2

    -- One of the fields of a holder, see pool.lua; empty if it has none.
    local function field(holder, number)
        local from = 1
        for _ = 2, number do
            from = (string.find(holder, '\31', from, true) or #holder) + 1
        end
        return string.sub(holder, from, (string.find(holder, '\31', from, true) or 0) - 1)
    end

    -- u: the end of a lease that expired; tests/support/pool_verdict.py reads it all.
    function found.log(pool, kind, holder, until_us)
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

    local function by_census(quota)
        local seen = census[quota.name]
        quota.used, quota.first_end = seen and seen.used or 0, seen and seen.first_end or 0
        quota.is_counted, quota.dirty = true, true
    end

    -- The leases of all pools of the cell that have not ended: by quota how many there are, and the first end.
    -- It knows nothing of what changes later, so the quotas that this run has met are set by it at once.
    local function take_census()
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
        census = {}
        local from_us = now < marker.reap_from and 0 or now
        for key in pairs(sets) do
            local leases = redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES')  -- a key of another type has none
            for i = 1, #leases, 2 do
                local name, until_us = 'q' .. field(leases[i], 4), tonumber(leases[i + 1])
                if until_us > from_us and until_us <= now + LONGEST_LEASE_US then
                    local seen = census[name] or { used = 0, first_end = until_us }
                    seen.used, seen.first_end = seen.used + 1, math.min(seen.first_end, until_us)
                    census[name] = seen
                end
            end
        end
        for _, state in pairs(states) do
            if state.pack == quota_pack then
                by_census(state)
            end
        end
    end

    -- At most once a run for each quota: what changes later is counted then.
    function found.count(quota)
        if not census then
            take_census()
        end
        if not quota.is_counted then
            by_census(quota)
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
        if census or not quota.used then
            found.count(quota)
        end
        return quota
    end

    -- ---- leases -------------------------------------------------------------------------------------

    -- Takes out what has ended, and learns when the next one may.
    function found.reap(pool)
        redis.call('ZREMRANGEBYSCORE', pool.leases, string.format('(%.0f', now + LONGEST_LEASE_US), '+inf')  -- a foreign value
        pool.used = redis.call('ZCARD', pool.leases)
        local ended = redis.call('ZRANGEBYSCORE', pool.leases, '-inf', now, 'WITHSCORES')
        for i = 1, #ended, 2 do
            redis.call('ZREM', pool.leases, ended[i])
            pool.used = pool.used - 1
            found.log(pool, 'expire', ended[i], ended[i + 1])
        end
        local first = redis.call('ZRANGE', pool.leases, 0, 0, 'WITHSCORES')
        pool.first_end, pool.dirty = first[2] and tonumber(first[2]) or NEVER, true
    end

    -- The cell has no field for a pool with leases, so the leases determine the quotas.
    function found.recollect(pool)
        local holders = redis.call('ZRANGE', pool.leases, 0, -1)
        if holders[1] then
            take_census()
        end
        for _, holder in ipairs(holders) do
            quota_of(holder)
        end
    end

    -- While the clock is under suspicion no lease may reach further than one that is given now.
    function found.cut(pool)
        if pool.is_cut then
            return
        end
        pool.is_cut = true
        local most_us = now + pool.limit.lease_us
        local far = redis.call('ZRANGEBYSCORE', pool.leases, '(' .. string.format('%.0f', most_us), '+inf')
        for _, holder in ipairs(far) do
            redis.call('ZADD', pool.leases, most_us, holder)
            local quota = quota_of(holder)
            if quota then
                quota.first_end, quota.dirty = 0, true
            end
        end
        pool.first_end, pool.dirty = 0, true
    end

    -- When the first of the leases in the way may end: the latest time to ask again.
    local function first_end(pool, quota)
        if quota then
            return quota.used > 0 and math.max(1000, quota.first_end - now) or 1000000
        end
        local first = redis.call('ZRANGE', pool.leases, 0, 0, 'WITHSCORES')
        return first[2] and math.max(1000, tonumber(first[2]) - now) or 1000000
    end

    function found.kept_for_others(pool, class)
        local used = {}
        for _, holder in ipairs(redis.call('ZRANGE', pool.leases, 0, -1)) do
            local number = tonumber(field(holder, 3)) or 0
            used[number] = (used[number] or 0) + 1
        end
        local kept = 0
        for other, least in ipairs(pool.limit.minimum) do
            if other ~= class then
                kept = kept + math.max(0, least - (used[other] or 0))
            end
        end
        return kept
    end

    -- ---- the line -----------------------------------------------------------------------------------

    function found.name_line(pool)
        local base = string.sub(pool.leases, 1, -2)
        pool.alive, pool.line = base .. 'a', base .. 'w'
    end

    -- How many wait, without those that are not heard of any more.
    function found.meet_line(pool)
        found.name_line(pool)
        if now >= marker.reap_from then
            for _, holder in ipairs(redis.call('ZRANGEBYSCORE', pool.alive, '-inf', now)) do
                redis.call('ZREM', pool.alive, holder)
                redis.call('ZREM', pool.line .. field(holder, 3), holder)
                found.log(pool, 'absent', holder)
            end
        end
        pool.in_line = redis.call('ZCARD', pool.alive)
        if pool.in_line == 0 then
            pool.waiting, pool.dirty = 0, true
        end
    end

    local function out_of_line(pool, holder)
        if pool.waiting > 0 and redis.call('ZREM', pool.alive, holder) == 1 then
            redis.call('ZREM', pool.line .. field(holder, 3), holder)
            pool.in_line, pool.passed = pool.in_line - 1, nil
            return true
        end
        return false
    end

    -- The first of a class that may take a slot: holder, since when it waits, its quota. `passed` says how many
    -- are before it whose tenants are at their quotas: nobody of them is looked at again in this run, as long as
    -- no place of a quota comes free.
    local function head_of(pool, class, passed)
        for from = passed[class], SCANNED - 1 do
            local waiter = redis.call('ZRANGE', pool.line .. class, from, from, 'WITHSCORES')
            if not waiter[1] then
                return nil
            end
            local quota = quota_of(waiter[1])
            local hindrance = in_the_way(pool, quota, class)
            if hindrance == 0 then
                return waiter[1], tonumber(waiter[2]), quota
            elseif hindrance ~= NO_QUOTA then
                return nil
            end
            passed[class] = from + 1
        end
    end

    local function following(pool, passed)
        local best, best_since, best_quota, best_class
        local promoted = false
        for class = 1, pool.limit.classes do
            passed[class] = passed[class] or 0
            local holder, since_us, quota = head_of(pool, class, passed)
            if holder then
                local late = since_us <= now - pool.limit.promote_us
                if not best or (late and (not promoted or since_us < best_since)) then
                    best, best_since, best_quota, best_class = holder, since_us, quota, class
                    promoted = promoted or late
                end
            end
        end
        return best, best_quota, promoted, best_class
    end

    -- Gives free slots to who waits, in order, and tells each process. The asker itself needs no telling. After
    -- a loss what seems free may be somebody's, of whom nothing is known yet.
    function found.hand_over(pool, asker)
        if now < marker.grants_from then
            return false
        end
        settled(pool)
        local served, passed = false, pool.passed_at == freed and pool.passed or {}
        while pool.in_line > 0 and pool.used < pool.capacity do
            local holder, quota, promoted, class = following(pool, passed)
            if not holder then
                break
            end
            if not out_of_line(pool, holder) then
                -- The set of the living was lost, the line was not (somebody cleared the keys one by one): nobody
                -- is there to take the slot. While such a waiter were first, in any class, this loop would not end.
                redis.call('ZREM', pool.line .. class, holder)
            elseif holder == asker then
                served = true
                grant(pool, quota, holder, now + pool.limit.lease_us, promoted and 'promote' or 'grant')
            else
                grant(pool, quota, holder, now + pool.limit.claim_us, promoted and 'promote' or 'hand')
                redis.call('PUBLISH', PREFIX .. 'g:' .. field(holder, 2), field(holder, 1))
                handed = handed .. string.sub(holder, 1, 16)
            end
        end
        if pool.in_line == 0 then
            pool.waiting, pool.dirty = 0, true
        end
        pool.passed, pool.passed_at = passed, freed  -- who was served stood behind them
        return served
    end

    local function stand_in_line(pool, holder, since_us, line_us)
        if pool.waiting == 0 then
            found.name_line(pool)
            pool.waiting, pool.in_line, pool.dirty = 1, 0, true
        end
        local class = field(holder, 3)
        if redis.call('ZADD', pool.alive, now + math.max(line_us, 1), holder) == 1 then
            pool.in_line = pool.in_line + 1
            if pool.tenants then
                pool.tenants[field(holder, 6)] = true
            end
            redis.call('ZADD', pool.line .. class, 'LT', since_us, holder)
            local passed = pool.passed and pool.passed[tonumber(class)]
            if passed and redis.call('ZRANK', pool.line .. class, holder) < passed then
                pool.passed = nil
            end
            if line_us > 0 and events > 0 then
                found.log(pool, 'wait', holder)
            end
        end
        local ttl_ms = math.ceil(line_us / 1000) + HOUR_MS
        redis.call('PEXPIRE', pool.alive, ttl_ms)
        redis.call('PEXPIRE', pool.line .. class, ttl_ms)
    end

    -- Beyond the bound each tenant has one place, up to twice the bound. Waiters are counted once a run.
    local function crowded(pool, limit, holder)
        if pool.waiting == 0 or pool.in_line >= 2 * limit.max_waiters then
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

    -- What was known of slots is lost: only who has one already keeps it. Who is refused keeps no place either.
    function found.take_while_learning(pool, quota, limit, holder)
        settled(pool)
        local fence = claim(pool, quota, limit, holder)
        if fence then
            return TAKEN, 0, fence
        end
        if out_of_line(pool, holder) and events > 0 then
            found.log(pool, 'leave', holder)
        end
        return LEARNING, marker.grants_from - now, 0
    end

    function found.take(pool, quota, limit, holder, since_us, line_us, hindrance)
        settled(pool)  -- where the quota was in the way, nobody looked yet; an ended lease is not claimed again
        local fence = claim(pool, quota, limit, holder)
        if fence then
            return TAKEN, 0, fence
        end
        if limit.minimum then  -- in the fast step the class was not known
            hindrance = in_the_way(pool, quota, tonumber(field(holder, 3)))
            if hindrance == 0 and pool.waiting == 0 then
                return TAKEN, 0, grant(pool, quota, holder, now + limit.lease_us, 'grant')
            end
        end
        local end_us = first_end(pool, hindrance == NO_QUOTA and quota)
        local in_line = pool.waiting > 0 and pool.in_line or 0
        if in_line >= limit.max_waiters and not (in_line > 0 and redis.call('ZSCORE', pool.alive, holder))
            and crowded(pool, limit, holder) then
            return hindrance == NO_QUOTA and NO_QUOTA or FULL, end_us, 0
        end
        stand_in_line(pool, holder, since_us, line_us)
        if found.hand_over(pool, holder) then
            return TAKEN, 0, pool.fence
        end
        if in_the_way(pool, quota, tonumber(field(holder, 3))) == 0 then  -- behind a crowd that may not take one
            local passed = pool.passed
            out_of_line(pool, holder)
            pool.passed = passed  -- it did not stand among them
            return TAKEN, 0, grant(pool, quota, holder, now + limit.lease_us, 'grant')
        end
        if line_us <= 0 then
            out_of_line(pool, holder)
            return hindrance == NO_QUOTA and NO_QUOTA or FULL, end_us, 0
        end
        return IN_LINE, math.min(end_us, 1000000), 0
    end

    -- The call of a holder is over: he wants no place in line either.
    function found.pass_on(pool, holder)
        settled(pool)
        out_of_line(pool, holder)
        found.hand_over(pool)
    end

    -- The call is not made: give up a place in line, and a slot that was granted meanwhile.
    function found.leave(pool, quota, holder)
        if holder == '' or not pool then
            return
        end
        settled(pool)
        if out_of_line(pool, holder) and events > 0 then
            found.log(pool, 'leave', holder)
        end
        if pool.used > 0 and drop(pool, quota, holder) then
            if events > 0 then
                found.log(pool, 'release', holder)
            end
            if pool.waiting > 0 then
                found.hand_over(pool)
            end
        end
    end

    -- Another lease, or more time in line. held: 1 what the store lost and gave to nobody, its holder may have
    -- back; 2 it is told of a slot that a process gave itself while the store was away.
    function found.renew(pool, quota, holder, line_us, held)
        settled(pool)
        local until_us = now + pool.limit.lease_us
        if redis.call('ZSCORE', pool.leases, holder) then
            lease(pool, quota, holder, until_us)
            return HELD
        end
        if held == 2 or (held == 1 and now < marker.grants_from) then
            out_of_line(pool, holder)  -- else the next slot is his, too, and his lease as short as a claim
            grant(pool, quota, holder, until_us, 'again')
            return HELD
        end
        if line_us > 0 and pool.waiting > 0 and redis.call('ZSCORE', pool.alive, holder) then
            redis.call('ZADD', pool.alive, now + line_us, holder)
            found.hand_over(pool)
            return redis.call('ZSCORE', pool.leases, holder) and HELD or WAITING
        end
        return GONE
    end
end
