-- job_release_follow_up: make the job that follows a run due when that run ends, in whatever way: completed,
-- failed, cancelled, released, or rescued.
-- Takes   the row of the run
-- Returns NULL
-- Locks   the job that follows, and a new row of lane_wake
-- Needs   the transaction that took over the unique key to have locked the row of the run, so that its job is
--         visible here
CREATE FUNCTION job_release_follow_up() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE next_job record;
BEGIN
    UPDATE job SET run_at = follow_at, follow_at = NULL
    WHERE kind = OLD.kind AND tenant_id = OLD.tenant_id AND unique_key = OLD.unique_key AND unique_live
        AND state = 'available' AND follow_at IS NOT NULL
    RETURNING lane_id, run_at, queue INTO next_job;
    IF FOUND THEN
        INSERT INTO lane_wake (lane_id, due_at) VALUES (next_job.lane_id, next_job.run_at);
        PERFORM pg_notify('fairlead_job', next_job.queue);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER job_release_follow_up AFTER UPDATE OF state ON job FOR EACH ROW
    WHEN (OLD.state = 'running' AND NEW.state <> 'running' AND OLD.unique_key IS NOT NULL AND NOT OLD.unique_live)
    EXECUTE FUNCTION job_release_follow_up();
