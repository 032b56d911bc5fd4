-- job_claim_suspect: claim one suspect, which is a job that was running when its process died, under the same
-- caps and pauses as all work.
-- Takes   claimer: the session; lease_seed; queues, kinds, providers ('{}': all)
-- Returns the row of the job, with started_at NULL; no row if no suspect may run
-- Locks   the claimed row only; passes over locked ones
-- Needs   job_suspect_idx. A crash of busy processes leaves thousands of suspects, and each claim looks for
--         one. So it reads one at a time, and skips names that it has found paused or full. It reads a row
--         again after locking it, because not every PostgreSQL from 15 to 18 does so for a row found by its
--         ctid. Spec: R3.
CREATE FUNCTION job_claim_suspect(
    claimer uuid, lease_seed bigint, queues text[], kinds text[], providers text[])
RETURNS SETOF job LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE suspect record; blocked_names text[] := '{}'; name text;
BEGIN
    PERFORM FROM worker_session w WHERE w.session_id = claimer AND w.lost_at IS NULL AND w.stopped_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR suspect IN
        SELECT j.job_id, j.queue, j.kind, coalesce(j.provider, '') AS provider, j.tenant_id, j.group_key FROM job j
        WHERE j.queue = ANY(queues) AND j.state = 'available' AND j.crash_count > 0 AND j.run_at <= now()
            AND (j.expires_at IS NULL OR j.expires_at > now())
            AND (cardinality(kinds) = 0 OR j.kind = ANY(kinds))
            AND (cardinality(providers) = 0 OR j.provider = ANY(providers))
        ORDER BY j.priority, j.run_at, j.job_id
    LOOP
        name := ROW(suspect.queue, suspect.kind, suspect.provider, suspect.tenant_id, suspect.group_key)::text;
        CONTINUE WHEN name = ANY(blocked_names);
        -- lane_places comes last, and only if the cap looks free: it locks the cap's row until the end (R17)
        IF paused_until(suspect.queue, suspect.kind, suspect.provider, suspect.tenant_id, suspect.group_key) IS NOT NULL
            OR is_capped(suspect.kind, suspect.tenant_id, suspect.group_key)
                AND (cap_is_full(suspect.tenant_id, suspect.group_key) OR (lane_places(
                    ARRAY[suspect.tenant_id], ARRAY[suspect.group_key], ARRAY[1]))[1] <= 0)
        THEN
            IF cardinality(blocked_names) < 100 THEN  -- a longer list would cost as much as the checks that it saves
                blocked_names := blocked_names || name;
            END IF;
            CONTINUE;
        END IF;
        PERFORM FROM job j
        WHERE j.job_id = suspect.job_id AND j.state = 'available' AND j.crash_count > 0 AND j.run_at <= now()
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        RETURN QUERY
        UPDATE job SET
            state = 'running', attempt = attempt + 1, started_at = NULL, session_id = claimer,
            lease_id = uuid_hash_extended(job_id, lease_seed) & 9223372036854775807
        WHERE job_id = suspect.job_id AND state = 'available'
        RETURNING job.*;
        RETURN;
    END LOOP;
END $$;
