-- job_is_free: lock a job with a mark on its row (xmax), and return whether it was free.
CREATE FUNCTION job_is_free(marked tid) RETURNS boolean LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
    SELECT true FROM job WHERE ctid = marked FOR UPDATE SKIP LOCKED
$$;
