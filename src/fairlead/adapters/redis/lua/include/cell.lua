-- cell: all numbers of a domain in one hash: its buckets, breakers, pools and quotas, a field each.
--
-- A batch reads a field once, changes it as often as its items ask, and writes it once. What an item names is
-- given as names of 23 characters in a row, in the order of its plan: breaker, quota, pool, buckets.

local NAME = 23
local CELL_MS = 32 * 86400000

local cells = {}

local function cell_at(key)
    local cell = cells[key]
    if not cell then
        cell = { key = key, met = {}, states = {}, packed = {} }
        cells[key] = cell
    end
    return cell
end

-- What a plan meets: the names of its states, and what is kept of each (false: nothing).
local function meet(cell, names, key)
    local met = cell.met[names]
    if not met then
        local each = {}
        local place = 0
        for from = 1, #names, NAME do
            place = place + 1
            each[place] = string.sub(names, from, from + NAME - 1)
        end
        met = { cell = cell, names = each, kept = redis.call('HMGET', cell.key, unpack(each)), pool = false, key = key }
        cell.met[names] = met
    end
    return met
end

-- The state at a place of a plan, as `read` makes it of what is kept.
local function state_at(met, place, read, limit, more)
    local name = met.names[place]
    local state = met.cell.states[name]
    if not state then
        state = read(met.cell.packed[name] or met.kept[place], limit, more)
        met.cell.packed[name] = nil
        state.name, state.cell = name, met.cell
        met.cell.states[name] = state
    end
    return state
end

local function write_cells()
    for key, cell in pairs(cells) do
        local written = {}
        local count = 0
        for name, state in pairs(cell.states) do
            if state.dirty then
                written[count + 1], written[count + 2] = name, state.pack(state)
                count = count + 2
            end
        end
        for name, packed in pairs(cell.packed) do
            written[count + 1], written[count + 2] = name, packed
            count = count + 2
        end
        if count > 0 then
            -- One write in sixteen puts the end of its life off: what is used so rarely that none does is as
            -- good as new when it is forgotten.
            if redis.call('HSET', key, unpack(written)) > 0 or now % 16 == 0 then
                redis.call('PEXPIRE', key, CELL_MS)
            end
        end
    end
end
