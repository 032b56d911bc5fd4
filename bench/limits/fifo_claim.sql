-- fifo_claim: hand due jobs to one worker, the most urgent first.
-- Takes   queues (in the order of their turns), providers (empty: any), demand, session_id, lease_seed (random)
-- Returns the claimed jobs, in no promised order
-- Locks   the claimed rows only; never waits for another worker
-- Needs   job_ready_idx for (queue, priority, run_at, job_id): each pair of priority and queue is one index
--         range, read until the demand is met. An open session: a process that was declared lost gets
--         nothing. A provider filter reads past the jobs of others: give such workers a queue of their own
WITH live AS MATERIALIZED (
    SELECT FROM worker_session
    WHERE session_id = :session_id::uuid AND lost_at IS NULL AND stopped_at IS NULL
),
turn AS (
    SELECT level AS priority, named.queue
    FROM live, generate_series(0, 3) AS level, unnest(:queues::text[]) WITH ORDINALITY AS named (queue, place)
    ORDER BY level, place
),
picked AS MATERIALIZED (  -- a fence: the planner may not run these limits twice
    SELECT candidate.tid
    FROM turn CROSS JOIN LATERAL (
        SELECT job.ctid AS tid FROM job
        WHERE job.queue = turn.queue AND job.priority = turn.priority
            AND job.state = 'available' AND job.crash_count = 0 AND job.run_at <= now()
            AND (job.expires_at IS NULL OR job.expires_at > now())
            AND (cardinality(:providers::text[]) = 0 OR job.provider = ANY(:providers::text[]))
        ORDER BY job.run_at, job.job_id
        LIMIT :demand::bigint FOR UPDATE SKIP LOCKED
    ) AS candidate
    LIMIT :demand::bigint
)
UPDATE job SET
    state = 'running', attempt = attempt + 1, started_at = now(), session_id = :session_id::uuid,
    -- a fence per job from one random number per claim (R1): 63 bits, compared by equality only
    lease_id = uuid_hash_extended(job_id, :lease_seed::bigint) & 9223372036854775807
WHERE ctid = ANY(ARRAY(SELECT tid FROM picked))  -- the locked rows themselves: no second search by an index
RETURNING job_id, lease_id, queue, kind, tenant_id, provider, group_key, priority, attempt, crash_count, args,
    streaks, replay_of, created_at, date_part('epoch', now() - run_at) AS waited_s
