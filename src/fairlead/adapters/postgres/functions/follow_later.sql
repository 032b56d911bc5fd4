-- follow_later: the run_at of a job that follows a run: beyond every delay, so that no search for due work
-- finds it.
CREATE FUNCTION follow_later() RETURNS timestamptz LANGUAGE sql STABLE
RETURN now() + interval '400 days';
