-- server_check: what a server must be asked before anything is trusted to it.
-- Takes   nothing
-- Gives   one row: version as a number, synchronous_commit, isolation by default
-- Locks   nothing
-- Needs   nothing
SELECT
    current_setting('server_version_num')::integer AS version,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('default_transaction_isolation') AS isolation
