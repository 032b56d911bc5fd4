-- job_claimed: read back the jobs of a claim with a lost response.
-- Takes   session_id, lease_seed (of that claim)
-- Returns the jobs that run under this claim, as job_claim would have returned them
-- Locks   nothing
-- Needs   job_running_since_idx
SELECT job_id, lease_id, queue, kind, tenant_id, provider, group_key, priority, attempt, crash_count, args,
    streaks, replay_of, created_at, extract(epoch FROM coalesce(started_at, now()) - run_at)::float8 AS waited_s,
    extract(epoch FROM now() - call_waits_since)::float8 AS call_waited_s
FROM job
WHERE session_id = :session_id::uuid AND state = 'running'
    AND lease_id = uuid_hash_extended(job_id, :lease_seed::bigint) & 9223372036854775807
