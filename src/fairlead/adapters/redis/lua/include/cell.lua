-- cell: all numbers of a domain in one hash: its buckets, breakers, pools and quotas, a field each.
--
-- A run turns to one cell after the other. What an item names is given as names of 23 characters in a row, in
-- the order pool, breaker, quota, buckets, so that what changes together is neighbours; a place is a number in that order. Behind the last name
-- stand the versions of their limits (R28), a number for each place. A place is read when
-- it is first needed, changed as often as items in a row ask for it, and written when the run turns away.

--- @include forms

local NAME = 23
local CELL_MS = 32 * 86400000

local cell_key, leases_key, names = '', '', ''
local kept, read = nil, 0
local first_changed, last_changed = 99, 0
local shapes = {}
local states = false  -- by name, once the whole judgement has met the cell

local function name_at(place)
    return sub(names, NAME * place - NAME + 1, NAME * place)
end

local function version_of(place, last)
    return (parse('<d', names, NAME * last + 8 * place - 7))
end

-- Whether the numbers of version `given` replace those of `known`; is_newer in policy/limits/limit.py.
local LEVEL, OWNER = 2 ^ 51, 2 ^ 40

local function newer(given, known)
    local level, held = floor(given / LEVEL), floor(known / LEVEL)
    if level == held then
        return given % OWNER > known % OWNER
    end
    return level > held or floor(given % LEVEL / OWNER) == floor(known % LEVEL / OWNER)
end

-- What is kept of each place up to `last`: false where there is nothing.
local function need(last)
    if read >= last then
        return kept
    end
    local shape = shapes[last - read]
    if not shape then
        shape = string.rep('c23', last - read)
        shapes[last - read] = shape
    end
    -- parse gives a number behind the names: a field that there is not, cheaper than a table to leave it out.
    local found = call('HMGET', cell_key, parse(shape, names, NAME * read + 1))
    if read == 0 then
        kept = found
    else
        for i, packed in ipairs(found) do
            kept[read + i] = packed
        end
    end
    read = last
    return kept
end

local function change(place, packed)
    kept[place] = packed
    if place < first_changed then
        first_changed = place
    end
    if place > last_changed then
        last_changed = place
    end
end

local function write(fields, count)
    -- One write in sixteen puts the end of its life off: what is used so rarely that none does is as good as
    -- new when it is forgotten.
    if call('HSET', cell_key, unpack(fields, 1, count)) > 0 or now % 16 == 0 then
        call('PEXPIRE', cell_key, CELL_MS)
    end
end

local fields = {}

local function write_changes()
    if last_changed > 0 then
        local count = 0
        for place = first_changed, last_changed do
            if kept[place] then
                fields[count + 1], fields[count + 2] = name_at(place), kept[place]
                count = count + 2
            end
        end
        first_changed, last_changed = 99, 0
        write(fields, count)
    end
end

local write_states  -- of the whole judgement, see states.lua

-- The items that follow are about the cell KEYS[at], and what `these` names in it. Once the whole judgement has
-- met a cell, its states stay until the run turns to another.
local function turn_to(at, these)
    if states and KEYS[at] ~= cell_key then
        write_states()
    end
    write_changes()
    cell_key, leases_key, names, read = KEYS[at], KEYS[at + 1], these, 0
end
