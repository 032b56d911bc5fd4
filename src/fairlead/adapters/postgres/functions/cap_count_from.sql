-- cap_count_from: the time from which the jobs under a cap are counted, which is counted_from if that is 15 s
-- old.
--
-- Every claim that saw the cap held its row, so none of its jobs began before counted_from. A claim that did
-- not see a new cap is visible after 15 s, because statements end within 12 s. If the clock was set back, all
-- jobs are counted, and counted_from is computed anew.
CREATE FUNCTION cap_count_from(counted_from timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN counted_from <= now() - interval '15 seconds' THEN counted_from ELSE '-infinity' END
$$;
