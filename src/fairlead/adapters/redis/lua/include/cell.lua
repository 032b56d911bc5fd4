-- cell: the state of one domain in one hash, with a field for each bucket, breaker, pool and quota.
--
-- A run handles its cells in order. An item names its fields by 23 characters each, in the order pool,
-- breaker, quota, buckets, so that fields that change together are adjacent. A place is an index in that
-- order. After the names come the versions of their limits (R28), a number for each place. A place is read
-- once, when first needed, and written when the run switches to another cell.

--- @include record_formats

local NAME = 23
local CELL_MS = 32 * 86400000

local cell_key, leases_key, names = '', '', ''
local stored, places_read = nil, 0
local first_changed, last_changed = 99, 0
local shapes = {}
local states = false  -- by name, once the full path has used the cell

local function name_at(place)
    return sub(names, NAME * place - NAME + 1, NAME * place)
end

local function version_of(place, last)
    return (parse('<d', names, NAME * last + 8 * place - 7))
end

-- Return whether `version` replaces `stored_version`, as is_newer in policy/limits/limit.py.
local LEVEL, OWNER = 2 ^ 51, 2 ^ 40

local function is_newer(version, stored_version)
    local level, stored_level = floor(version / LEVEL), floor(stored_version / LEVEL)
    if level == stored_level then
        return version % OWNER > stored_version % OWNER
    end
    return level > stored_level or floor(version % LEVEL / OWNER) == floor(stored_version % LEVEL / OWNER)
end

-- Return the stored value of each place up to `last`; false if there is none.
local function load_places(last)
    if places_read >= last then
        return stored
    end
    local shape = shapes[last - places_read]
    if not shape then
        shape = string.rep('c23', last - places_read)
        shapes[last - places_read] = shape
    end
    -- parse also returns a number after the names. HMGET takes it as one more field, because removing it would cost a
    -- table.
    local values = call('HMGET', cell_key, parse(shape, names, NAME * places_read + 1))
    if places_read == 0 then
        stored = values
    else
        for i, packed in ipairs(values) do
            stored[places_read + i] = packed
        end
    end
    places_read = last
    return stored
end

local function set_place(place, packed)
    stored[place] = packed
    if place < first_changed then
        first_changed = place
    end
    if place > last_changed then
        last_changed = place
    end
end

local function write(fields, count)
    -- One write in sixteen extends the time to live. A cell that is used too rarely for that has refilled by
    -- the time it expires.
    if call('HSET', cell_key, unpack(fields, 1, count)) > 0 or now % 16 == 0 then
        call('PEXPIRE', cell_key, CELL_MS)
    end
end

local fields = {}

local function write_changes()
    if last_changed > 0 then
        local count = 0
        for place = first_changed, last_changed do
            if stored[place] then
                fields[count + 1], fields[count + 2] = name_at(place), stored[place]
                count = count + 2
            end
        end
        first_changed, last_changed = 99, 0
        write(fields, count)
    end
end

local write_states  -- of the full path, see state_tables.lua

-- Switch to the cell KEYS[at] and its fields `cell_names`. The tables of the full path stay until the run
-- switches to another cell.
local function switch_cell(at, cell_names)
    if states and KEYS[at] ~= cell_key then
        write_states()
    end
    write_changes()
    cell_key, leases_key, names, places_read = KEYS[at], KEYS[at + 1], cell_names, 0
end
