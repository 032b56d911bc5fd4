-- breaker_reset: close a breaker by hand; calls return step by step, as after a successful probe (G12).
-- Takes   KEYS  the cell of its domain
--         ARGV  its name in the cell, 1 to change nothing, the time in us or 0 for the server's
-- Returns the previous mode: 0 closed, 1 open, 2 half-open
-- Writes  the breaker's field, if it was not closed
-- Needs   the cell as gate.lua writes it

local now = tonumber(ARGV[3])
if now == 0 then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

--- @include breaker

local breaker = breaker_read(redis.call('HGET', KEYS[1], ARGV[1]))
local previous_mode = breaker.mode
if previous_mode ~= CLOSED and ARGV[2] ~= '1' then
    breaker_close(breaker)
    breaker.closed_at = now
    redis.call('HSET', KEYS[1], ARGV[1], breaker_pack(breaker))
end
return previous_mode
