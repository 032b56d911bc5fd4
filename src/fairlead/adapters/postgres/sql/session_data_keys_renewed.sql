-- session_data_keys_renewed: ask every live process to look up the current data keys again.
-- Takes   nothing
-- Returns nothing
-- Locks   the sessions' rows
-- Needs   the clock and not now(): a renewal that was first to lock the row has not seen this, and must count as earlier
UPDATE worker_session SET data_keys_renewed_at = clock_timestamp() WHERE lost_at IS NULL AND stopped_at IS NULL
