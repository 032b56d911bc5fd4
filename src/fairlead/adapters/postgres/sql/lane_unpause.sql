-- lane_unpause: wake lanes that were parked for a pause; another pause may park them again.
-- Takes   lane_ids, notify
-- Returns one row: lanes
-- Locks   those that are parked for a pause, in the order of their ids
-- Needs   the function lane_unpause; lane_wake_up, which claims call
SELECT lane_unpause(:lane_ids::uuid[], :notify::boolean) AS lanes
