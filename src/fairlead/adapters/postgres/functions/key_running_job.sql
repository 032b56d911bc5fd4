-- key_running_job: return a run that has passed on this unique key, locked, so that it ends after the commit of
-- the caller.
-- Takes   kind, tenant_id, unique_key, skip_cancelled: leave out a run that is being cancelled
-- Returns job_id; NULL if there is none
-- Locks   the run
-- Needs   job_key_runs_idx. It is called for each job that is stored with a key: with a join instead, such an
--         enqueue would cost a fifth more
CREATE FUNCTION key_running_job(kind text, tenant_id text, unique_key text,
    skip_cancelled boolean) RETURNS uuid LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
BEGIN
    RETURN (
        SELECT j.job_id FROM job j
        WHERE j.kind = $1 AND j.tenant_id = $2 AND j.unique_key = $3 AND j.unique_key IS NOT NULL
            AND NOT j.unique_live AND j.state = 'running' AND NOT ($4 AND j.result IS NOT NULL)
        LIMIT 1 FOR NO KEY UPDATE);
END $$;
