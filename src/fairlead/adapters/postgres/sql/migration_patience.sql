-- migration_patience: how long this transaction waits for a lock before it gives up.
-- Takes   patience_ms (as text)
-- Gives   nothing of interest
-- Locks   nothing
-- Needs   a transaction
SELECT set_config('lock_timeout', :patience_ms, true)
