-- schedule_run_prune: delete the records of runs that were taken long ago.
-- Takes   older_than_s, limit
-- Returns one row: deleted
-- Locks   the rows that it deletes; never waits for another process
-- Needs   schedule_run_taken_idx
WITH old_run AS MATERIALIZED (
    SELECT ctid AS tid FROM schedule_run
    WHERE taken_at < now() - :older_than_s::float8 * interval '1 second'
    ORDER BY taken_at
    LIMIT :limit::bigint FOR UPDATE SKIP LOCKED
),
deleted_run AS (
    DELETE FROM schedule_run WHERE ctid = ANY(ARRAY(SELECT tid FROM old_run)) RETURNING run_at
)
SELECT count(*) AS deleted FROM deleted_run
