-- recover: take out the lease of a holder that is gone, unless it was renewed since it was seen
-- Takes   KEYS  the sets in which it stands: the slots of a pool (their name ends in :l), the quota of a tenant
--         ARGV  the holder's text, the end of its lease as it was seen, in us
-- Gives   1 if it was taken out, 0 if it was renewed, or gone by itself
-- Writes  the sets, and the log of the pool; who waits asks again within a second and finds the slot
-- Needs   all keys under one hash tag

local HOUR_MS = 3600000
local holder, seen_us = ARGV[1], tonumber(ARGV[2])

for _, key in ipairs(KEYS) do
    local until_us = redis.call('ZSCORE', key, holder)
    if until_us and tonumber(until_us) > seen_us then
        return 0
    end
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local taken = 0
for _, key in ipairs(KEYS) do
    if redis.call('ZREM', key, holder) == 1 then
        taken = 1
        if string.sub(key, -2) == ':l' then
            local log = string.sub(key, 1, -2) .. 'e'
            redis.call('XADD', log, 'MAXLEN', '~', 100, '*', 'k', 'recover', 't', now,
                'n', redis.call('ZCARD', key), 'c', 0, 'h', holder, 'u', seen_us)
            redis.call('PEXPIRE', log, HOUR_MS)
        end
    end
end
return taken
