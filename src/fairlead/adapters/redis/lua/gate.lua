-- gate: process a batch of admissions, releases, cancellations and renewals, one after the other.
-- Takes   KEYS     the marker, then for each cell in turn the cell, and its leases if the plan has a pool
--         ARGV     head, prefix, then four for each item: plan, names, request (packed, see codec.py),
--         holder.          plan and names are empty if they equal those of the item before
-- Returns the server's time, then one packed result per item, in order. The time alone if it differs from the
--         one that the caller expects: then nothing was done. At the end, 16 characters for each lease
--         granted a slot
-- Writes  what the items change; leases, queues, reservations and events under keys beside the cell
-- Needs   all keys of a cell under its hash tag; the limits arrive in the plans (R28)
--
-- Redis creates a script's functions anew for each run. Those that few runs need are therefore created on
-- demand.

--- @include clock
--- @include cell
--- @include fast_path

local handed = ''  -- lease ids that were granted a slot; if they belong to the caller, it needs no message
local repaired = ''  -- the cell with repaired keys

local full_path, repair
local fast_path = { admit_fast, release_fast }
local fast_path_ok = events == 0 and spends == 0 and now >= marker.reap_from and now >= marker.grants_from
local answers = { struct.pack('<dd', now, marker.birth) }
local plan
local item, key = 1, 2
for i = 3, #ARGV, 4 do
    plan = ARGV[i] ~= '' and ARGV[i] or plan
    if ARGV[i + 1] ~= '' then
        switch_cell(key, ARGV[i + 1])
        key = key + (string.byte(plan) >= 4 and 2 or 1)
    end
    local ask, holder = ARGV[i + 2], ARGV[i + 3]
    local act = string.byte(ask)
    local done, answer
    if fast_path_ok and not states and act <= 2 then
        done, answer = pcall(fast_path[act], plan, ask, holder)  -- the full path handles what this cannot read
    end
    if not done or not answer then
        if not full_path then
--- @include full_path
        end
        done, answer = pcall(full_path[act], plan, ask, holder)
        if not done and repair() then
            done, answer = pcall(full_path[act], plan, ask, holder)
        end
        if not done then
            error(answer, 0)
        end
    end
    item = item + 1
    answers[item] = answer
end
switch_cell(1, '')
if handed ~= '' then
    answers[item + 1] = handed
end
return answers
