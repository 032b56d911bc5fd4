-- state_tables: the stored state of a cell as Lua tables, for the full path.

local quota_counts  -- the counts of the cell's quotas by name, if this run had to count them; see wait_queue.lua

function write_states()
    local count = 0
    for name, state in pairs(states) do
        if state.dirty then
            fields[count + 1], fields[count + 2] = name, state.pack(state)
            count = count + 2
        end
    end
    states, quota_counts = false, nil
    if count > 0 then
        write(fields, count)
    end
end

-- Return the state at a place of a plan. `make` creates its table from the stored value; it is written at the
-- end. `last` is the last place of the plan, which is read at once.
local function state_at(place, last, make, limit, extra)
    if not states then
        write_changes()
        states = {}
    end
    local name = name_at(place)
    local state = states[name]
    if not state then
        state = make(load_places(last)[place], limit, version_of(place, last), extra)
        state.name = name
        states[name] = state
    end
    return state
end
