-- line_promote: a person puts one who waits for a slot before all others of its line (G12).
-- Takes   KEYS  the sorted set of those in line that live; then the lines, one a class, in their order
--         ARGV  lease id of the one (16 hex digits), after how long a waiter is promoted in us, 1 to change nothing
-- Gives   1, or 0 where nobody of this lease waits
-- Writes  since when it is said to wait; its own later asks leave that as it is (line.lua)
-- Needs   lines as gate.lua keeps them

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local found, line
local first_us = now - tonumber(ARGV[2])  -- who waits for so long goes before every class
for class = 2, #KEYS do
    local waiting = redis.call('ZRANGE', KEYS[class], 0, -1, 'WITHSCORES')
    for i = 1, #waiting, 2 do
        if string.sub(waiting[i], 1, 17) == ARGV[1] .. '\31' and redis.call('ZSCORE', KEYS[1], waiting[i]) then
            found, line = waiting[i], KEYS[class]
        end
        first_us = math.min(first_us, tonumber(waiting[i + 1]))
    end
end
if found and ARGV[3] ~= '1' then
    redis.call('ZADD', line, first_us - 1, found)
end
return found and 1 or 0
