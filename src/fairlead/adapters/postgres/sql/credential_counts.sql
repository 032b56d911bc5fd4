-- credential_counts: count connections by state.
-- Takes   nothing
-- Returns state, count
-- Locks   nothing
-- Needs   nothing. It reads the whole table: for people, not for hot paths
SELECT state, count(*) AS count FROM credential GROUP BY state;
