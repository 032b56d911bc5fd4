-- lane_hold: park the lanes of a group until its turn at the provider's limits, or until what holds them longer.
-- Takes   lane_ids, and the group's tenant_id, key
-- Returns nothing
-- Locks   the hold's row, so that nobody ends it between the look and the deed; the lanes in the order of their
--         ids: it waits for claims, which hold lanes for some milliseconds
-- Needs   the function lane_hold
SELECT lane_hold(:lane_ids::uuid[], :tenant_id::text, :key::text)
