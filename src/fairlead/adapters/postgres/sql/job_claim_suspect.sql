-- job_claim_suspect: claim one job that was running when a process crashed; the worker runs it alone (R3).
-- Takes   queues, kinds and providers (empty: any), session_id, lease_seed (random)
-- Returns the claimed job, or no row
-- Locks   its row, and the caps it counts; never waits for another worker
-- Needs   the function job_claim_suspect; job_suspect_idx. started_at stays NULL until job_start_suspect, so a
--         process that dies before the job began is not counted as a crash of this job
SELECT job_id, lease_id, queue, kind, tenant_id, provider, group_key, priority, attempt, crash_count, args,
    streaks, replay_of, created_at, extract(epoch FROM now() - run_at)::float8 AS waited_s,
    extract(epoch FROM now() - call_waits_since)::float8 AS call_waited_s
FROM job_claim_suspect(
    :session_id::uuid, :lease_seed::bigint, :queues::text[], :kinds::text[], :providers::text[])
