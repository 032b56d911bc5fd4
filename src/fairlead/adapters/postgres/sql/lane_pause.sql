-- lane_pause: park lanes of a pause that is in force, whatever state they are in.
-- Takes   lane_ids, and the pause's scope, tenant_id, key
-- Returns nothing
-- Locks   the pause's row, so that nobody resumes it between the look and the deed; the lanes in the order of
--         their ids: it waits for claims, which hold lanes for some milliseconds
-- Needs   the function lane_pause. Idle lanes too: a transaction that would make one ready finds that it
--         has changed under his hands
SELECT lane_pause(:lane_ids::uuid[], :scope::text, :tenant_id::text, :key::text)
