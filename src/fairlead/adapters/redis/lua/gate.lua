-- gate: process a batch of admissions, releases, cancellations and renewals in order.
-- Takes   KEYS     the marker, then for each cell in turn the cell, and its leases if the plan has a pool
--         ARGV     head, prefix, then four for each item: plan, names, request (packed, see codec.py),
--         holder.          plan and names are empty if they equal those of the item before
-- Returns the server's time, then one packed result per item, in order; last, 16 characters for each lease that was
--         granted a slot. Only the time, if it differs from the one that the caller expects: then nothing was done
-- Writes  what the items change; leases, queues, reservations and events under keys beside the cell
-- Needs   all keys of a cell under its hash tag; the limits arrive in the plans (R28)
--
-- Redis creates the functions of a script anew for each run, so those that few runs need are created on demand.

--- @include clock
--- @include cell
--- @include fast_path

local granted_ids = ''  -- ids of leases that were granted a slot; the caller needs no message for its own
local repaired_cell = ''  -- the key of the cell, if this run repaired it

local full_path, repair
local fast_path = { admit_fast, release_fast }
local fast_path_ok = events == 0 and spends == 0 and now >= marker.reap_from and now >= marker.grants_from
local results = { struct.pack('<dd', now, marker.birth) }
local plan
local item, key = 1, 2
for i = 3, #ARGV, 4 do
    plan = ARGV[i] ~= '' and ARGV[i] or plan
    if ARGV[i + 1] ~= '' then
        switch_cell(key, ARGV[i + 1])
        key = key + (string.byte(plan) >= 4 and 2 or 1)
    end
    local request, holder = ARGV[i + 2], ARGV[i + 3]
    local operation = string.byte(request)
    local ok, result
    if fast_path_ok and not states and operation <= 2 then
        ok, result = pcall(fast_path[operation], plan, request, holder)  -- if it fails, the full path runs
    end
    if not ok or not result then
        if not full_path then
--- @include full_path
        end
        ok, result = pcall(full_path[operation], plan, request, holder)
        if not ok and repair() then
            ok, result = pcall(full_path[operation], plan, request, holder)
        end
        if not ok then
            error(result, 0)
        end
    end
    item = item + 1
    results[item] = result
end
switch_cell(1, '')
if granted_ids ~= '' then
    results[item + 1] = granted_ids
end
return results
