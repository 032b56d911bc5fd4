-- migration_patience: set how long a migration waits for a lock before it gives up.
-- Takes   patience_ms (as text), within_transaction (false: for the rest of the session)
-- Returns nothing of interest
-- Locks   nothing
-- Needs   nothing
SELECT set_config('lock_timeout', :patience_ms, :within_transaction)
