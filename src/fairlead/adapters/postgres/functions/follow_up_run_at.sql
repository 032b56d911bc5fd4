-- follow_up_run_at: the run_at of a job that waits for the end of a run: later than any delay, so that no
-- search for due jobs finds it.
CREATE FUNCTION follow_up_run_at() RETURNS timestamptz LANGUAGE sql STABLE
RETURN now() + interval '400 days';
