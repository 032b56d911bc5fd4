-- queue_promote: move a waiter for a slot to the front of its queue by hand (G12).
-- Takes   KEYS  the sorted set of the live waiters; then the queues, one per class, in order
--         ARGV  lease id of the waiter (16 hex digits), max_wait_s in us, 1 to change nothing
-- Returns 1, or 0 if no such lease waits
-- Writes  since when it waits; its later requests do not change that (wait_queue.lua)
-- Needs   queues as gate.lua writes them

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local waiter, queue
local first_us = now - tonumber(ARGV[2])  -- a waiter that has waited longer precedes every class
for class = 2, #KEYS do
    local waiting = redis.call('ZRANGE', KEYS[class], 0, -1, 'WITHSCORES')
    for i = 1, #waiting, 2 do
        if string.sub(waiting[i], 1, 17) == ARGV[1] .. '\31' and redis.call('ZSCORE', KEYS[1], waiting[i]) then
            waiter, queue = waiting[i], KEYS[class]
        end
        first_us = math.min(first_us, tonumber(waiting[i + 1]))
    end
end
if waiter and ARGV[3] ~= '1' then
    redis.call('ZADD', queue, first_us - 1, waiter)
end
return waiter and 1 or 0
