-- enqueue_insert: store a job, and a row of lane_wake by which the next claim finds it.
-- Takes   new_job
-- Returns its id; NULL if the id or the unique key is taken
-- Locks   the new rows of job and lane_wake; waits for a transaction that stores the same unique key
-- Needs   a caller that runs with the rights of the owner
CREATE FUNCTION enqueue_insert(new_job job) RETURNS uuid LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE job_lane_id uuid;
BEGIN
    INSERT INTO job (job_id, kind, tenant_id, queue, provider, group_key, priority, run_at, args, unique_key,
                     unique_live, unique_until, expires_at, tags, follow_at)
    VALUES (new_job.job_id, new_job.kind, new_job.tenant_id, new_job.queue, new_job.provider, new_job.group_key,
            new_job.priority, new_job.run_at, new_job.args, new_job.unique_key, new_job.unique_live,
            new_job.unique_until, new_job.expires_at, new_job.tags, new_job.follow_at)
    ON CONFLICT DO NOTHING RETURNING job.lane_id INTO job_lane_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO lane_wake (lane_id, due_at) VALUES (job_lane_id, new_job.run_at);
    RETURN new_job.job_id;
END $$;

REVOKE ALL ON FUNCTION enqueue_insert FROM PUBLIC;
