-- job_retry_now: make an available job due now.
-- Takes   job_id, tenant_id (its tenant; NULL: any)
-- Returns job_id; no row if it is not available
-- Locks   its row, and its lane if that is not ready
-- Needs   the primary key; lane_touch_for_tenant
WITH due_job AS (
    UPDATE job SET run_at = least(run_at, now()), follow_at = NULL
    WHERE job_id = :job_id AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id) AND state = 'available'
    RETURNING job_id, queue, lane_id, run_at, crash_count
),
lane_update AS MATERIALIZED (
    SELECT lane_touch_for_tenant(array_agg(lane_id), array_agg(run_at)) FROM due_job
        WHERE crash_count = 0 HAVING count(*) > 0
)
SELECT job_id, pg_notify('fairlead_job', queue) FROM due_job LEFT JOIN lane_update ON true
