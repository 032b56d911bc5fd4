-- server_check: what a server must be asked before anything is trusted to it.
-- Takes   nothing
-- Gives   one row: version as a number, synchronous_commit, isolation by default, engine
--         (whether this user has the rights of fairlead_engine; NULL where there is no such role),
--         schema (where our tables are; NULL where search_path shows none)
-- Locks   nothing
-- Needs   nothing
SELECT
    current_setting('server_version_num')::integer AS version,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('default_transaction_isolation') AS isolation,
    (SELECT pg_has_role(current_user, oid, 'USAGE') FROM pg_roles WHERE rolname = 'fairlead_engine') AS engine,
    (SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
     WHERE pg_class.oid = to_regclass('job')) AS schema
