-- cap_since: from when jobs under a cap are counted: 15 s before the stored moment. A claim holds the row of
-- the cap, so nothing that it claims began before that moment. If the clock is set back, all jobs are counted
-- and the moment is found anew. A claim that did not see a cap because it was just being set is visible after
-- 15 s, because statements end within 12 s.
CREATE FUNCTION cap_since(counted_from timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN counted_from <= now() - interval '15 seconds' THEN counted_from ELSE '-infinity' END
$$;
