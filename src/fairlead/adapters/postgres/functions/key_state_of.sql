-- key_state_of: the word for the state of the job that has the unique key of a new job.
CREATE FUNCTION key_state_of(state text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE state WHEN 'available' THEN 'waiting' WHEN 'running' THEN 'running' ELSE 'finished' END;
