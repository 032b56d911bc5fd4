-- gate: judge a batch of admissions, ends, cancellations and renewals, one after the other.
-- Takes   KEYS     the marker, then per cell that is turned to: the cell, and where its plan has a pool its leases
--         ARGV     head, prefix, then per item four: plan, names, ask (packed, see codec.py), holder; plan is
--                  empty where it is that of the item before, and names where they are
-- Gives   the server's time, then one packed answer per item, in order; or the time alone, which is not what the
--         caller thinks it is: then nothing was done. One more: 16 characters for each lease that was handed a slot
-- Writes  what the items change; leases, lines, turns and events under keys beside the cell
-- Needs   all keys that begin as a cell does under its hash tag; the limits travel in the plans (R28)
--
-- Redis runs a script whole, and makes its functions anew for each run: those that only some runs need are made
-- when they are needed.

--- @include clock
--- @include cell
--- @include swift

local handed = ''  -- lease ids that were given a slot: their process may be the caller, which needs no message
local mended = ''  -- the cell that was damaged

local whole, mend
local swift = { swift_admit, swift_finish }
local calm = events == 0 and spends == 0 and now >= marker.reap_from and now >= marker.grants_from
local answers = { struct.pack('<dd', now, marker.birth) }
local plan
local item, key = 1, 2
for i = 3, #ARGV, 4 do
    plan = ARGV[i] ~= '' and ARGV[i] or plan
    if ARGV[i + 1] ~= '' then
        turn_to(key, ARGV[i + 1])
        key = key + (string.byte(plan) >= 4 and 2 or 1)
    end
    local ask, holder = ARGV[i + 2], ARGV[i + 3]
    local act = string.byte(ask)
    local done, answer
    if calm and not states and act <= 2 then
        done, answer = pcall(swift[act], plan, ask, holder)  -- the whole judgement handles what this cannot read
    end
    if not done or not answer then
        if not whole then
--- @include whole
        end
        done, answer = pcall(whole[act], plan, ask, holder)
        if not done and mend() then
            done, answer = pcall(whole[act], plan, ask, holder)
        end
        if not done then
            error(answer, 0)
        end
    end
    item = item + 1
    answers[item] = answer
end
turn_to(1, '')
if handed ~= '' then
    answers[item + 1] = handed
end
return answers
