-- key_run_covers: whether a running holder of a unique key covers a new job, as unique_while = open asks. A run
-- that is being cancelled does not.
CREATE FUNCTION key_run_covers(unique_while text, state text, result jsonb)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN unique_while = 'open' AND state = 'running' AND result IS NULL;
