-- enqueue_settle: decide at commit whether fairlead_enqueue stores a job, or the holder of its unique key
-- covers it.
-- Takes   the row of enqueue_note that the transaction wrote
-- Returns NULL
-- Locks   the waiting holder of the key until the commit, so that its handler sees what the caller stored
-- Needs   a deferred constraint trigger. It waits for no other transaction: a locked holder counts as begun,
--         and a key that another transaction is taking stays with that one. A run that has passed its key on is
--         followed, too
CREATE FUNCTION enqueue_settle() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET lock_timeout = 0
AS $$
DECLARE
    note enqueue_note;
    new_job job;
    now_at timestamptz := clock_timestamp();
    job_lane_id uuid;
    job_run_at timestamptz;
    predecessor_state text;
BEGIN
    DELETE FROM enqueue_note n
    WHERE n.transaction_id = NEW.transaction_id AND n.kind = NEW.kind AND n.of_tenant = NEW.of_tenant
        AND n.unique_key = NEW.unique_key AND n.queue = NEW.queue
    RETURNING * INTO note;
    IF note.new_job IS NULL THEN
        RETURN NULL;
    END IF;
    new_job := pg_catalog.jsonb_populate_record(NULL::job, note.new_job);
    IF NOT note.must THEN
        UPDATE job j SET
            priority = holder.priority, run_at = holder.run_at, expires_at = holder.expires_at,
            follow_at = CASE WHEN j.follow_at IS NOT NULL THEN least(j.follow_at, new_job.run_at) END,
            lane_id = lane_id_of(j.queue, j.kind, j.provider, holder.priority, j.tenant_id, j.group_key)
        FROM (
            SELECT h.job_id, a.* FROM job h
                CROSS JOIN key_holder_merge(h, new_job.priority, new_job.run_at, new_job.expires_at) AS a
            WHERE h.kind = new_job.kind AND h.tenant_id = new_job.tenant_id AND h.unique_key = new_job.unique_key
                AND h.unique_live AND h.state = 'available'
                AND ((h.priority, h.run_at, h.expires_at) IS DISTINCT FROM (a.priority, a.run_at, a.expires_at)
                    OR h.follow_at > new_job.run_at)
                AND key_covers(h.kind, h.state, h.expires_at, NULL, now_at)
            FOR NO KEY UPDATE OF h SKIP LOCKED) AS holder
        WHERE j.job_id = holder.job_id
        RETURNING j.lane_id, j.run_at INTO job_lane_id, job_run_at;
        IF FOUND THEN
            INSERT INTO lane_wake (lane_id, due_at) VALUES (job_lane_id, job_run_at);
            RETURN NULL;
        END IF;
        PERFORM FROM job h
        WHERE h.kind = new_job.kind AND h.tenant_id = new_job.tenant_id AND h.unique_key = new_job.unique_key
            AND h.unique_live AND (key_covers(h.kind, h.state, h.expires_at, h.unique_until, now_at)
                                   OR key_run_covers(note.unique_while, h.state, h.result))
        FOR SHARE SKIP LOCKED;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE job j SET unique_live = false
    WHERE j.job_id = (
        SELECT h.job_id FROM job h
        WHERE h.kind = new_job.kind AND h.tenant_id = new_job.tenant_id AND h.unique_key = new_job.unique_key
            AND h.unique_live AND NOT key_covers(h.kind, h.state, h.expires_at, h.unique_until, now_at)
        FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING j.state INTO predecessor_state;
    job_run_at := new_job.run_at;
    IF note.unique_while <> 'waiting' THEN
        IF predecessor_state IS DISTINCT FROM 'running' THEN
            SELECT h.state INTO predecessor_state FROM job h
            WHERE h.kind = new_job.kind AND h.tenant_id = new_job.tenant_id AND h.unique_key = new_job.unique_key
                AND h.unique_key IS NOT NULL AND NOT h.unique_live AND h.state = 'running'
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;  -- the lock makes it end after this commit
        END IF;
        IF predecessor_state = 'running' THEN
            new_job.follow_at := job_run_at;
            new_job.run_at := follow_up_run_at();
        END IF;
    END IF;
    BEGIN
        PERFORM set_config('lock_timeout', '1ms', true);
        IF enqueue_insert(new_job) IS NOT NULL THEN
            RETURN NULL;
        END IF;
    EXCEPTION WHEN lock_not_available THEN  -- two callers that waited for each other's keys would deadlock
    END;
    PERFORM set_config('lock_timeout', '0', true);
    new_job.run_at := job_run_at;
    new_job.follow_at := NULL;
    new_job.unique_live := false;  -- another job has the key, so this one is stored without it
    PERFORM enqueue_insert(new_job);
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER enqueue_settle AFTER INSERT ON enqueue_note DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION enqueue_settle();
REVOKE ALL ON FUNCTION enqueue_settle FROM PUBLIC;
