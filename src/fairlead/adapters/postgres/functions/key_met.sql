-- key_met: the name for the state in which a new job met the holder of its unique key.
CREATE FUNCTION key_met(state text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE state WHEN 'available' THEN 'waiting' WHEN 'running' THEN 'running' ELSE 'finished' END;
