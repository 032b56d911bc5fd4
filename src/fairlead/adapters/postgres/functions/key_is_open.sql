-- key_is_open: whether the holder of a unique key answers although it runs. One that is being cancelled does
-- not.
CREATE FUNCTION key_is_open(unique_while text, state text, result jsonb)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN unique_while = 'open' AND state = 'running' AND result IS NULL;
