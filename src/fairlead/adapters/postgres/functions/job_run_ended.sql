-- job_run_ended: make the job that follows a run due when the run ends: completed, failed, cancelled, handed
-- back, or rescued.
-- Takes   the row of the run
-- Returns NULL
-- Locks   the job that follows, and a new row of lane_wake
-- Needs   the transaction that took the unique key to have locked the row of the run, so that its job is
--         visible here
CREATE FUNCTION job_run_ended() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE freed record;
BEGIN
    UPDATE job SET run_at = follow_at, follow_at = NULL
    WHERE kind = OLD.kind AND tenant_id = OLD.tenant_id AND unique_key = OLD.unique_key AND unique_live
        AND state = 'available' AND follow_at IS NOT NULL
    RETURNING lane_id, run_at, queue INTO freed;
    IF FOUND THEN
        INSERT INTO lane_wake (lane_id, due_at) VALUES (freed.lane_id, freed.run_at);
        PERFORM pg_notify('fairlead_job', freed.queue);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER job_run_ended AFTER UPDATE OF state ON job FOR EACH ROW
    WHEN (OLD.state = 'running' AND NEW.state <> 'running' AND OLD.unique_key IS NOT NULL AND NOT OLD.unique_live)
    EXECUTE FUNCTION job_run_ended();
