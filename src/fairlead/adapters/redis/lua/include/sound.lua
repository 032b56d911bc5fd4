-- sound: what is read is a stranger's: a number that ours cannot be makes the whole of its field unknown, as if it
-- were missing. NaN fails each comparison.

--- @include forms

local function sound(number)
    return number >= 0 and number < MOST
end
