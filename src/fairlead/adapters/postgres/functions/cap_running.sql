-- cap_running: count the jobs that run under a cap, and find when the oldest of them began.
-- Takes   of_tenant, of_group: the names of the cap ('': all); since: count only jobs that began then or later
-- Returns jobs, oldest; both NULL if an argument is NULL
-- Locks   nothing
-- Needs   job_running_since_idx, job_running_group_since_idx. A suspect that has not begun counts, and holds
--         `oldest` at `since`, because it begins in a transaction of its own, which may commit more than 15 s
--         later
CREATE FUNCTION cap_running(
    of_tenant text, of_group text, since timestamptz, OUT jobs bigint, OUT oldest timestamptz)
LANGUAGE plpgsql STABLE STRICT
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    IF of_tenant = '' THEN
        SELECT count(*), min(coalesce(j.started_at, '-infinity')) INTO jobs, oldest FROM job j
        WHERE j.group_key = of_group AND j.group_key <> '' AND j.state = 'running'
            AND coalesce(j.started_at, 'infinity') >= since AND NOT is_internal_kind(j.kind);
    ELSE
        SELECT count(*), min(coalesce(j.started_at, '-infinity')) INTO jobs, oldest FROM job j
        WHERE j.tenant_id = of_tenant AND j.state = 'running'
            AND coalesce(j.started_at, 'infinity') >= since AND NOT is_internal_kind(j.kind)
            AND (of_group = '' OR j.group_key = of_group);
    END IF;
END $$;
