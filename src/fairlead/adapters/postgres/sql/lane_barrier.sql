-- lane_barrier: wait for the transactions that are creating lanes at this moment.
-- Takes   nothing
-- Returns nothing. A transaction reads settings and pauses before it creates a lane. So after this statement
--         each lane is visible, or was created by a transaction that read everything committed before
-- Locks   the table lane_name in SHARE mode while it waits: some milliseconds, because only short statements of
--         fairlead create lanes. It holds no other lock, so it cannot be part of a deadlock
-- Needs   the lock of lane_name that lane_create takes before its snapshot
DO $$ BEGIN LOCK TABLE lane_name IN SHARE MODE; END $$
