-- session_prune: delete the sessions of processes that ended long ago and have no running jobs.
-- Takes   older_than_s, limit
-- Returns one row: deleted
-- Locks   the rows that it deletes; never waits for another process
-- Needs   job_running_since_idx. The table is small
WITH old_session AS MATERIALIZED (
    SELECT session_id FROM worker_session
    WHERE coalesce(lost_at, stopped_at) < now() - :older_than_s::float8 * interval '1 second'
        AND session_id <> ALL(ARRAY(SELECT DISTINCT session_id FROM job WHERE state = 'running'))
    LIMIT :limit::bigint FOR UPDATE SKIP LOCKED
),
deleted_session AS (
    DELETE FROM worker_session WHERE session_id = ANY(ARRAY(SELECT session_id FROM old_session)) RETURNING session_id
)
SELECT count(*) AS deleted FROM deleted_session
