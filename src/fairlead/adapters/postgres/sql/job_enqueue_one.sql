-- job_enqueue_one: store one new job without a unique key. It takes 0.4 ms instead of the 1.2 ms of
-- job_enqueue_plain; deleting it changes only speed.
-- Takes   job_id, tenant_id, args, lane_id (as the function lane_id_of computes it), kind, queue, provider,
--         group_key, priority, delay_s, expires_in_s, tags, replay_of; and notify (notify workers if it is due
--         now)
-- Returns one row
-- Locks   the new row, and its lane if it is not ready
-- Needs   lane_is_open, lane_touch; a new job id (a known one breaks the primary key: see job_present)
WITH new_job AS (
    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, expires_at, tags,
                     replay_of, lane_id)
    VALUES (:job_id::uuid, :kind::text, :tenant_id::text, :queue::text, :provider::text, :group_key::text,
            :priority::smallint, now() + :delay_s::float8 * interval '1 second', :args::jsonb,
            now() + :expires_in_s::float8 * interval '1 second', :tags::text[], :replay_of::uuid, :lane_id::uuid)
    RETURNING lane_id, run_at
)
SELECT
    CASE WHEN NOT lane_is_open(lane_id, run_at) THEN lane_touch(ARRAY[lane_id], ARRAY[run_at]) END AS lane_update,
    CASE WHEN :notify::boolean AND run_at <= now() THEN pg_notify('fairlead_job', :queue::text) END AS notification
FROM new_job
