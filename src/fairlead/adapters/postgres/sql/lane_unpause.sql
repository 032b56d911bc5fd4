-- lane_unpause: have lanes that were parked for a pause looked at again; other pauses may hold them still.
-- Takes   lane_ids, notify
-- Gives   one row: lanes
-- Locks   those lanes, in the order of their ids
-- Needs   the function lane_unpause (0027_lanes_moved_from_above); lane_wake_up, which everybody who claims calls
SELECT lane_unpause(:lane_ids::uuid[], :notify::boolean) AS lanes
