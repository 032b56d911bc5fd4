-- record_formats: the packed form of stored values, and the constants that the parts share.

local MICRO = 1000000
local CLOSED, OPEN, HALF_OPEN = 0, 1, 2
local HEALTHY, UNHEALTHY, BEGUN, UNREACHED, KEEPS_SLOT = 1, 2, 3, 4, 8
local TICK_US, TICKS = 5000000, 6
local TOUCH_US, LONG_US = 600000000, 1800000000
local HOUR_MS = 3600000
local BUCKET, POOL, QUOTA = '<ddddddddd', '<dIddBd', '<dd'
-- Eight numbers; the good and the bad calls of each part of the window; the reporter and its calls.
local BREAKER = '<dddddddddddddddddddddd'

-- Locals, so that they are looked up once per run.
local call, pack, parse = redis.call, struct.pack, struct.unpack
local sub, byte, floor, max, min = string.sub, string.byte, math.floor, math.max, math.min

-- The bounds of the numbers that the gate writes. No bucket holds less than LEAST_UNITS.
local LEAST_UNITS, MOST_SLOTS, MOST_UNITS, MOST = MICRO / 1000, 100000, 1000000000 * MICRO, 9007199254740992
