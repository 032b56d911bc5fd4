-- pause_end: delete a pause.
-- Takes   scope, tenant_id, key
-- Returns one row: in_force; no row if there was none
-- Locks   its row
-- Needs   the primary key. A transaction that parks a lane for a pause holds its row until it ends (paused_until_locked, lane_pause),
--         so this waits for him, and lane_unpause, in a statement of its own, sees what he did
DELETE FROM pause WHERE scope = :scope AND tenant_id = :tenant_id AND key = :key RETURNING until > now() AS in_force
