-- recover: remove the lease of a dead holder, unless it was renewed since it was read.
-- Takes   KEYS  the slots of its pool
--         ARGV  the holder's text, the end of its lease as it was read, in us
-- Returns 1 if it was removed, 0 if it was renewed or has expired
-- Writes  the slots and the log of the pool; deletes its tenant's quota, so that it is counted anew. A
--         waiting call asks again within a second and finds the slot
-- Needs   all keys under one hash tag

local HOUR_MS = 3600000
local holder, read_until_us = ARGV[1], tonumber(ARGV[2])

local lease_until_us = redis.call('ZSCORE', KEYS[1], holder)
if not lease_until_us or tonumber(lease_until_us) > read_until_us then
    return 0
end
redis.call('ZREM', KEYS[1], holder)

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local log = string.sub(KEYS[1], 1, -2) .. 'e'
redis.call('XADD', log, 'MAXLEN', '~', 100, '*', 'k', 'recover', 't', now,
    'n', redis.call('ZCARD', KEYS[1]), 'c', 0, 'h', holder, 'u', read_until_us)
redis.call('PEXPIRE', log, HOUR_MS)

local quota = string.match(holder, '^[^\31]*\31[^\31]*\31[^\31]*\31([^\31]+)')
if quota then
    redis.pcall('HDEL', string.match(KEYS[1], '^.-}:') .. 'c', 'q' .. quota)
end
return 1
