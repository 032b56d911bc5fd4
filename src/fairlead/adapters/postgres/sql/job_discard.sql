-- job_discard: jobs end for good, each with its dead letter (Q9, R19).
-- Takes   arrays of one length: job_ids, lease_ids, dead_letter_ids, failures, connection_ids,
--         token_expires_ats, actions_in_s (NULL: only a person can act)
-- Gives   job_id of those accepted; the others were not running under that lease any more
-- Locks   the jobs' rows, and those of the dead letters reopened
-- Needs   the primary key; dead_letter_bury; lane_uncap, which is asked only where caps are set
WITH input AS (
    SELECT * FROM unnest(
        :job_ids::uuid[], :lease_ids::bigint[], :dead_letter_ids::uuid[], :failures::jsonb[],
        :connection_ids::uuid[], :token_expires_ats::timestamptz[], :actions_in_s::float8[])
    AS i (job_id, lease_id, dead_letter_id, failure, connection_id, token_expires_at, action_in_s)
),
dead AS (
    UPDATE job SET
        state = 'discarded', finished_at = now(), crash_count = 0, lease_id = NULL, session_id = NULL,
        settled_lease_id = input.lease_id, unique_live = coalesce(unique_until > now(), false),
        failures = failure_added(failures, input.failure)
    FROM input
    WHERE job.job_id = input.job_id AND job.lease_id = input.lease_id  -- which only a running job has
    RETURNING job.job_id, job AS final, input.dead_letter_id, input.failure, input.connection_id,
              input.token_expires_at, input.action_in_s
),
places AS MATERIALIZED (
    SELECT lane_uncap(array_agg((final).tenant_id), array_agg((final).group_key), 4 * count(*)::integer + 8) FROM dead
    WHERE EXISTS (SELECT FROM running_cap) HAVING count(*) > 0
)
SELECT job_id,
    dead_letter_bury(
        dead_letter_id, final, failure ->> 'category', failure ->> 'code', failure ->> 'reason',
        coalesce(failure -> 'details', '{}'), connection_id, token_expires_at,
        now() + action_in_s * interval '1 second')
FROM dead LEFT JOIN places ON true
