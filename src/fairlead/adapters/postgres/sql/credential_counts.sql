-- credential_counts: connections by state.
-- Takes   nothing
-- Returns state, count
-- Locks   nothing
-- Needs   reads the table: for people, not for hot paths
SELECT state, count(*) AS count FROM credential GROUP BY state;
