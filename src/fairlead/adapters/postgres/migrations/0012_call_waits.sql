-- 0012_call_waits: a job keeps since when a call of it waits for a slot, over all its runs (R26).
-- Phase   pre (the version before it goes on with its own claim, and leaves the column as it is)
-- Needs   0003_fair_claim
ALTER TABLE job ADD COLUMN call_waits_since timestamptz;

-- The claim of 0003 with one column more. It is a function of its own, since what a function gives cannot be changed
-- under a version that reads it.
DO $$
DECLARE
    made text := pg_get_functiondef('job_claim'::regproc);
    changes text[] := ARRAY[
        ['job_claim(', 'job_claim_with_wait('],
        ['waited_s double precision)', 'waited_s double precision, call_waited_s double precision)'],
        ['date_part(''epoch'', now() - job.run_at);',
         'date_part(''epoch'', now() - job.run_at), date_part(''epoch'', now() - job.call_waits_since);']];
    change text[];
BEGIN
    FOREACH change SLICE 1 IN ARRAY changes LOOP
        IF strpos(made, change[1]) = 0 THEN
            RAISE 'job_claim has no %', change[1];
        END IF;
        made := replace(made, change[1], change[2]);
    END LOOP;
    EXECUTE made;
END $$;
