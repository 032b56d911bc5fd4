-- job_try_lock: lock a job with a mark on its row (xmax); return true if it was not locked, else NULL.
CREATE FUNCTION job_try_lock(job_tid tid) RETURNS boolean LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
    SELECT true FROM job WHERE ctid = job_tid FOR UPDATE SKIP LOCKED
$$;
