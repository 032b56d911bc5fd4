-- lane_pause: park lanes for a pause that is in force, whatever state they are in.
-- Takes   lane_ids, and the pause's scope, tenant_id, key
-- Returns nothing
-- Locks   the pause's row, so that no other transaction ends it meanwhile; the lanes in the order of their ids.
--         It waits for claims, which hold lanes for some milliseconds
-- Needs   the function lane_pause. It parks idle lanes, too, so that a transaction which would make one ready
--         finds a changed row
SELECT lane_pause(:lane_ids::uuid[], :scope::text, :tenant_id::text, :key::text)
