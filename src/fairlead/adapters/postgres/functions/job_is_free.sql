-- job_is_free: lock a job whose row has a mark (xmax), and return whether it was free.
CREATE FUNCTION job_is_free(marked tid) RETURNS boolean LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
    SELECT true FROM job WHERE ctid = marked FOR UPDATE SKIP LOCKED
$$;
