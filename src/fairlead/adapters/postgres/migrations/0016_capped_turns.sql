-- 0016_capped_turns: a lane that a claim gives nothing takes no place of a cap from those behind it (R17).
-- Phase   pre (the version before it goes on with it: the function gives and takes what it did)
-- Needs   0012_call_waits
--
-- A claim shares its jobs out by weight, and the share of a light lane may be none. Where such a lane stood first, the
-- places of its group's cap were kept for it, and nobody was given them: neither it nor those behind it, ever.
DO $$
DECLARE
    made text := pg_get_functiondef('job_claim_with_wait'::regproc);
    change text[];
BEGIN
    FOREACH change SLICE 1 IN ARRAY ARRAY[
        ['CASE WHEN l.capped THEN l.tenant_id END ORDER BY o', 'CASE WHEN l.capped AND takes[o] > 0 THEN l.tenant_id END ORDER BY o'],
        ['CASE WHEN l.capped THEN l.group_key END ORDER BY o', 'CASE WHEN l.capped AND takes[o] > 0 THEN l.group_key END ORDER BY o']]
    LOOP
        IF strpos(made, change[1]) = 0 THEN
            RAISE 'job_claim_with_wait has no %', change[1];
        END IF;
        made := replace(made, change[1], change[2]);
    END LOOP;
    EXECUTE made;
END $$;
