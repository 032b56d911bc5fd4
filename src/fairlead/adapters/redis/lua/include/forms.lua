-- forms: how what is kept is packed, and the numbers that its parts share.

local MICRO = 1000000
local CLOSED, OPEN, HALF_OPEN = 0, 1, 2
local HEALTHY, UNHEALTHY = 1, 2
local TICK_US, TICKS = 5000000, 6
local TOUCH_US, LONG_US = 600000000, 1800000000
local HOUR_MS = 3600000
local BUCKET, POOL, QUOTA = '<ddddddddd', '<dIddBdc23', '<ddc23'
local ALONE = string.rep('-', 23)  -- in place of a partner, see pool.lua
local BREAKER = '<dddddddddddddddddddd'  -- eight numbers, then good and bad of each tick

-- Names of this chunk's own: looked up once a run, not with every use.
local call, pack, parse = redis.call, struct.pack, struct.unpack
local sub, byte, floor, max, min = string.sub, string.byte, math.floor, math.max, math.min
