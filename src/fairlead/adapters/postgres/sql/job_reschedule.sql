-- job_reschedule: make running jobs available again after a delay. A failed attempt counts, a snooze does not.
-- Takes   arrays of one length: job_ids, lease_ids, delays_s (NULL: run_at is unchanged), failures (NULL: no
--         attempt was used), streaks (NULL: unchanged), call_waited_s (how long a call has waited for a slot;
--         NULL: none waits), args (NULL: unchanged)
-- Returns job_id of those accepted; the others no longer ran under that lease
-- Locks   the jobs' rows, and their lanes if these are not ready
-- Needs   the primary key; lane_touch, lane_uncap. A run that ended without a crash clears the crash count; a
--         suspect that never began stays a suspect (R3)
WITH available_job AS (
    UPDATE job SET
        state = 'available', run_at = coalesce(now() + input.delay_s * interval '1 second', job.run_at),
        attempt = CASE WHEN input.failure IS NULL THEN greatest(attempt - 1, 0) ELSE attempt END,
        crash_count = CASE WHEN started_at IS NULL THEN crash_count ELSE 0 END,
        lease_id = NULL, session_id = NULL, started_at = NULL, settled_lease_id = input.lease_id,
        failures = CASE WHEN input.failure IS NULL THEN failures ELSE failures_append(failures, input.failure) END,
        streaks = coalesce(input.streaks, job.streaks), args = coalesce(input.args, job.args),
        call_waits_since = now() - input.call_waited_s * interval '1 second'
    FROM unnest(:job_ids::uuid[], :lease_ids::bigint[], :delays_s::float8[], :failures::jsonb[], :streaks::jsonb[],
                :call_waited_s::float8[], :args::jsonb[])
        AS input (job_id, lease_id, delay_s, failure, streaks, call_waited_s, args)
    WHERE job.job_id = input.job_id AND job.lease_id = input.lease_id  -- only a running job has one
    RETURNING job.job_id, job.lane_id, job.run_at, job.crash_count, job.tenant_id, job.group_key
),
lane_update AS MATERIALIZED (
    SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM available_job WHERE crash_count = 0 HAVING count(*) > 0
),
cap_update AS MATERIALIZED (
    SELECT lane_uncap(array_agg(tenant_id), array_agg(group_key), 4 * count(*)::integer + 8) FROM available_job
    WHERE EXISTS (SELECT FROM concurrency_cap) HAVING count(*) > 0
)
SELECT available_job.job_id FROM available_job LEFT JOIN lane_update ON true LEFT JOIN cap_update ON true
