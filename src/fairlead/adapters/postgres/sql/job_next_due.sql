-- job_next_due: when the next available job is due.
-- Takes   queues, kinds and providers (empty: any)
-- Gives   one row: due_in_s, 0 or less if one is due, NULL if there is none
-- Locks   nothing
-- Needs   job_ready_idx or, with kinds, job_kind_idx; job_suspect_idx
WITH ready AS (
    SELECT next.run_at
    FROM generate_series(0, 3) AS level, unnest(:queues::text[]) AS named (queue) CROSS JOIN LATERAL (
        SELECT run_at FROM job
        WHERE cardinality(:kinds::text[]) = 0
            AND job.queue = named.queue AND job.priority = level
            AND job.state = 'available' AND job.crash_count = 0
            AND (cardinality(:providers::text[]) = 0 OR job.provider = ANY(:providers::text[]))
        ORDER BY job.run_at, job.job_id LIMIT 1
    ) AS next
),
ready_kind AS (
    SELECT next.run_at
    FROM generate_series(0, 3) AS level, unnest(:queues::text[]) AS named (queue),
        unnest(:kinds::text[]) AS wanted (kind) CROSS JOIN LATERAL (
        SELECT run_at FROM job
        WHERE job.queue = named.queue AND job.kind = wanted.kind AND job.priority = level
            AND job.state = 'available' AND job.crash_count = 0
            AND (cardinality(:providers::text[]) = 0 OR job.provider = ANY(:providers::text[]))
        ORDER BY job.run_at, job.job_id LIMIT 1
    ) AS next
),
suspect AS (
    SELECT next.run_at
    FROM unnest(:queues::text[]) AS named (queue) CROSS JOIN LATERAL (
        SELECT run_at FROM job
        WHERE job.queue = named.queue AND job.state = 'available' AND job.crash_count > 0
            AND (cardinality(:kinds::text[]) = 0 OR job.kind = ANY(:kinds::text[]))
            AND (cardinality(:providers::text[]) = 0 OR job.provider = ANY(:providers::text[]))
        ORDER BY job.run_at, job.job_id LIMIT 1
    ) AS next
)
SELECT extract(epoch FROM min(run_at) - now())::float8 AS due_in_s
FROM (SELECT run_at FROM ready UNION ALL SELECT run_at FROM ready_kind UNION ALL SELECT run_at FROM suspect) AS every
