-- kind_unhandled: list kinds with due jobs that no worker takes.
-- Takes   limit, bound (count no more jobs of a kind than this)
-- Returns queue, kind, jobs; the most jobs first
-- Locks   nothing
-- Needs   kind_is_handled; lane_ready_idx; job_lane_idx
SELECT class.queue, class.kind, due_count.jobs
FROM (SELECT DISTINCT queue, kind FROM lane_floor) AS class
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM lane l CROSS JOIN LATERAL (
                SELECT FROM job j
                WHERE j.lane_id = l.lane_id AND j.state = 'available' AND j.crash_count = 0 AND j.run_at <= now()
                LIMIT :bound::bigint) AS counted_row
            WHERE l.queue = class.queue AND l.kind = class.kind AND l.state = 'ready'
            LIMIT :bound::bigint) AS counted_row
    ) AS due_count
WHERE NOT kind_is_handled(class.queue, class.kind) AND due_count.jobs > 0
ORDER BY due_count.jobs DESC, class.queue, class.kind
LIMIT :limit::bigint
