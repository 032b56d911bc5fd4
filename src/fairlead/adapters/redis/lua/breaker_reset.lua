-- breaker_reset: a person closes a breaker; calls come back step by step, as after a probe that was well (G12).
-- Takes   KEYS  the cell of its domain
--         ARGV  its name in the cell, 1 to change nothing, the time in us or 0 for the server's
-- Gives   the mode that it was in: 0 closed, 1 open, 2 half-open
-- Writes  the breaker's field, where it was not closed
-- Needs   the cell as gate.lua writes it

local now = tonumber(ARGV[3])
if now == 0 then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

--- @include breaker

local breaker = breaker_read(redis.call('HGET', KEYS[1], ARGV[1]))
local was = breaker.mode
if was ~= CLOSED and ARGV[2] ~= '1' then
    breaker_close(breaker)
    breaker.closed_at = now
    redis.call('HSET', KEYS[1], ARGV[1], breaker_pack(breaker))
end
return was
