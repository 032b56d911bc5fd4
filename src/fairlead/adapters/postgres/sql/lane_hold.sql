-- lane_hold: park the lanes of a group until its reservation at the provider's limits, or longer under a longer
-- pause.
-- Takes   lane_ids, and the group's tenant_id, key
-- Returns nothing
-- Locks   the rate hold's row, so that no other transaction ends it meanwhile; the lanes in the order of their
--         ids. It waits for claims, which hold lanes for some milliseconds
-- Needs   the function lane_hold
SELECT lane_hold(:lane_ids::uuid[], :tenant_id::text, :key::text)
