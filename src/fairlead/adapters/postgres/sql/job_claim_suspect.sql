-- job_claim_suspect: hand one job that was in flight at a crash to one worker, which will run it alone (R3).
-- Takes   queues, kinds and providers (empty: any), session_id, lease_seed (random)
-- Gives   the claimed job, or no row
-- Locks   its row, for a moment one more per queue; never waits for another worker
-- Needs   job_suspect_idx: suspects are few. started_at stays NULL until job_start_suspect, so a process that
--         dies before it began counts as no crash of this job. An open session, like job_claim
WITH live AS MATERIALIZED (
    SELECT FROM worker_session
    WHERE session_id = :session_id::uuid AND lost_at IS NULL AND stopped_at IS NULL
),
picked AS MATERIALIZED (
    SELECT candidate.tid
    FROM live, unnest(:queues::text[]) AS named (queue) CROSS JOIN LATERAL (
        SELECT job.ctid AS tid, priority, run_at FROM job
        WHERE job.queue = named.queue AND job.state = 'available' AND job.crash_count > 0
            AND job.run_at <= now() AND (job.expires_at IS NULL OR job.expires_at > now())
            AND (cardinality(:kinds::text[]) = 0 OR job.kind = ANY(:kinds::text[]))
            AND (cardinality(:providers::text[]) = 0 OR job.provider = ANY(:providers::text[]))
        ORDER BY job.run_at, job.job_id
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS candidate
    ORDER BY candidate.priority, candidate.run_at
    LIMIT 1
)
UPDATE job SET
    state = 'running', attempt = attempt + 1, started_at = NULL, session_id = :session_id::uuid,
    lease_id = uuid_hash_extended(job_id, :lease_seed::bigint) & 9223372036854775807
WHERE ctid = ANY(ARRAY(SELECT tid FROM picked))
RETURNING job_id, lease_id, queue, kind, tenant_id, provider, group_key, priority, attempt, crash_count, args,
    streaks, replay_of, created_at, extract(epoch FROM now() - run_at)::float8 AS waited_s
