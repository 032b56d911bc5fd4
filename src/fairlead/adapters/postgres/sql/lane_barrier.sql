-- lane_barrier: wait for lanes that are being made at this moment.
-- Takes   nothing
-- Returns nothing. A transaction reads settings and pauses before it creates a lane. After this each lane is visible,
--         or was created by a transaction that read everything committed before
-- Locks   the table lane_name in SHARE mode, for no longer than it waits: some milliseconds, because only short
--         statements of our own make lanes. It holds nothing else, so nobody can wait for it in a circle
-- Needs   the lock of lane_name that lane_create takes before its snapshot
DO $$ BEGIN LOCK TABLE lane_name IN SHARE MODE; END $$
