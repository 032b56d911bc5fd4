-- job_prune: delete finished jobs that were kept long enough; a key that must stay unique longer is kept.
-- Takes   states, retentions_s (arrays of one length), limit
-- Returns one row: deleted
-- Locks   the rows deleted; never waits for another process
-- Needs   job_finished_idx: each state is one index range, oldest first
WITH old AS MATERIALIZED (
    SELECT candidate.tid
    FROM unnest(:states::text[], :retentions_s::float8[]) AS kept (state, retention_s) CROSS JOIN LATERAL (
        SELECT job.ctid AS tid FROM job
        WHERE job.state = kept.state AND job.finished_at IS NOT NULL
            AND greatest(job.finished_at, job.unique_until) < now() - kept.retention_s * interval '1 second'
        ORDER BY greatest(job.finished_at, job.unique_until)
        LIMIT :limit::bigint FOR UPDATE SKIP LOCKED
    ) AS candidate
    LIMIT :limit::bigint
),
gone AS (
    DELETE FROM job WHERE ctid = ANY(ARRAY(SELECT tid FROM old)) RETURNING job_id
)
SELECT count(*) AS deleted FROM gone
