-- job_prune: delete finished jobs after their retention; a job stays while its key must stay unique.
-- Takes   states, retentions_s (arrays of one length), limit
-- Returns one row: deleted
-- Locks   the rows that it deletes; never waits for another process
-- Needs   job_finished_idx, in which each state is one range, oldest first
WITH expired_job AS MATERIALIZED (
    SELECT candidate.tid
    FROM unnest(:states::text[], :retentions_s::float8[]) AS retention (state, retention_s) CROSS JOIN LATERAL (
        SELECT job.ctid AS tid FROM job
        WHERE job.state = retention.state AND job.finished_at IS NOT NULL
            AND greatest(job.finished_at, job.unique_until) < now() - retention.retention_s * interval '1 second'
        ORDER BY greatest(job.finished_at, job.unique_until)
        LIMIT :limit::bigint FOR UPDATE SKIP LOCKED
    ) AS candidate
    LIMIT :limit::bigint
),
deleted_job AS (
    DELETE FROM job WHERE ctid = ANY(ARRAY(SELECT tid FROM expired_job)) RETURNING job_id
)
SELECT count(*) AS deleted FROM deleted_job
