-- pause_end: delete a pause.
-- Takes   scope, tenant_id, key
-- Returns one row: in_force; no row if there was none
-- Locks   its row
-- Needs   the primary key. A transaction that parks a lane for a pause locks the pause until it ends
--         (paused_until_locked, lane_pause). So this statement waits for it, and lane_unpause, a later
--         statement, sees the parked lanes
DELETE FROM pause WHERE scope = :scope AND tenant_id = :tenant_id AND key = :key RETURNING until > now() AS in_force
