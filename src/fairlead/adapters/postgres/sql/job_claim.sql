-- job_claim: claim due jobs for one worker, lane by lane (Q2, Q6).
-- Takes   queues (in the order of their turns), kinds and providers (empty: any), demand, session_id,
--         lease_seed (random), wake (also check lanes that have become due: ten times a second is enough)
-- Returns the claimed jobs, in the order in which to start them
-- Locks   the lanes it takes from, the caps it counts, the claimed rows; never waits for another worker
-- Needs   the functions job_claim and lane_wake_up, and the indexes that their headers name; an open session: a
--         process that was declared lost gets no jobs
SELECT * FROM job_claim(
    :session_id::uuid, :lease_seed::bigint, :queues::text[], :kinds::text[], :providers::text[],
    :demand::integer, :wake::boolean)
