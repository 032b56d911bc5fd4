-- is_name: whether this is a valid name. policy/text/names.py checks the same. A plain expression becomes part
-- of the caller's plan.
CREATE FUNCTION is_name(name text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT name COLLATE "C" ~ '^[a-z0-9][a-z0-9_.-]{0,63}$';
END;
