-- unique_while_problem: the mistake in unique_while, as text; NULL if there is none. policy/jobs/job.py checks
-- the same.
CREATE FUNCTION unique_while_problem(unique_while text, unique_key text)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN unique_while IN ('follow_up', 'waiting', 'open') IS NOT TRUE THEN
        'unique_while: use follow_up, waiting or open; the nearest is '
            || CASE left(lower(unique_while), 1) WHEN 'w' THEN 'waiting' WHEN 'o' THEN 'open' ELSE 'follow_up' END
    WHEN unique_while <> 'follow_up' AND unique_key IS NULL THEN 'unique_while: give a unique_key, too'
END;
