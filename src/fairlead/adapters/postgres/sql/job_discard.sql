-- job_discard: discard jobs, each with its dead letter (Q9, R19); one that is to be cancelled has none (R55).
-- Takes   arrays of one length: job_ids, lease_ids, dead_letter_ids, failures, connection_ids,
--         token_expires_ats, actions_in_s (NULL: only a person can act), args (NULL: unchanged)
-- Returns job_id of those accepted; the others no longer ran under that lease
-- Locks   the jobs' rows, and those of the dead letters that it reopens
-- Needs   the primary keys; dead_letter_store; lane_uncap, which it calls only if there are caps
WITH input AS (
    SELECT * FROM unnest(
        :job_ids::uuid[], :lease_ids::bigint[], :dead_letter_ids::uuid[], :failures::jsonb[],
        :connection_ids::uuid[], :token_expires_ats::timestamptz[], :actions_in_s::float8[], :args::jsonb[])
    AS i (job_id, lease_id, dead_letter_id, failure, connection_id, token_expires_at, action_in_s, args)
),
final_row AS (
    UPDATE job SET
        state = CASE WHEN result IS NULL THEN 'discarded' ELSE 'cancelled' END, finished_at = now(),
            crash_count = 0, lease_id = NULL,
        session_id = NULL, settled_lease_id = input.lease_id, unique_live = coalesce(unique_until > now(), false),
        failures = failures_append(failures, input.failure), args = coalesce(input.args, job.args)
    FROM input
    WHERE job.job_id = input.job_id AND job.lease_id = input.lease_id  -- only a running job has one
    RETURNING job.job_id, job AS final, input.dead_letter_id, input.failure, input.connection_id,
              input.token_expires_at, input.action_in_s
),
updated_entry AS (  -- a replay may have saved its progress, from which the next one goes on
    UPDATE dead_letter SET args = (final).args
    FROM final_row
    WHERE dead_letter.dead_letter_id = (final).replay_of AND dead_letter.replay_job_id = final_row.job_id
        AND dead_letter.status = 'pending_review'
    RETURNING dead_letter.dead_letter_id
),
entry_count AS MATERIALIZED (SELECT count(*) FROM updated_entry),  -- all are updated before the first is reopened
lane_update AS MATERIALIZED (
    SELECT lane_uncap(array_agg((final).tenant_id), array_agg((final).group_key), 4 * count(*)::integer + 8) FROM final_row
    WHERE EXISTS (SELECT FROM concurrency_cap) HAVING count(*) > 0
)
SELECT job_id,
    dead_letter_store(
        dead_letter_id, final, failure ->> 'category', failure ->> 'code', failure ->> 'reason',
        coalesce(failure -> 'details', '{}'), connection_id, token_expires_at,
        now() + action_in_s * interval '1 second')
FROM final_row CROSS JOIN entry_count LEFT JOIN lane_update ON true
