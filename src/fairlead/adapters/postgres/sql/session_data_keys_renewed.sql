-- session_data_keys_renewed: ask every live process to read the current data keys again.
-- Takes   nothing
-- Returns nothing
-- Locks   the sessions' rows
-- Needs   clock_timestamp() instead of now(): a heartbeat that locked the row first has not seen this request,
--         and must have the earlier time
UPDATE worker_session SET data_keys_renewed_at = clock_timestamp() WHERE lost_at IS NULL AND stopped_at IS NULL
