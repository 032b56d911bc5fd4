-- states: the stored state of a cell, as tables of the whole judgement.

local census  -- by name, of the quotas of the cell, where this run had to count; see line.lua

function write_states()
    local count = 0
    for name, state in pairs(states) do
        if state.dirty then
            fields[count + 1], fields[count + 2] = name, state.pack(state)
            count = count + 2
        end
    end
    states, census = false, nil
    if count > 0 then
        write(fields, count)
    end
end

-- The state at a place of a plan, as `make` makes it of what is kept; its table is written at the end. `last` is
-- the last place of the plan: all of it is read at once.
local function state_at(place, last, make, limit, more)
    if not states then
        write_changes()
        states = {}
    end
    local name = name_at(place)
    local state = states[name]
    if not state then
        state = make(need(last)[place], limit, version_of(place, last), more)
        state.name = name
        states[name] = state
    end
    return state
end
