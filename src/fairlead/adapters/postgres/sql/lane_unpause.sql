-- lane_unpause: have lanes that were parked for a pause looked at again; other pauses may hold them still.
-- Takes   lane_ids, notify
-- Returns one row: lanes
-- Locks   those of them that a pause holds, in the order of their ids
-- Needs   the function lane_unpause; lane_wake_up, which every claim calls
SELECT lane_unpause(:lane_ids::uuid[], :notify::boolean) AS lanes
