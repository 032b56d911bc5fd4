-- job_claim_suspect: claim one suspect, a job that a process died with, under the same caps and pauses
-- as all other work.
-- Takes   claimer: the session, lease_seed, queues, kinds, providers ('{}': all)
-- Returns the row of the job, with started_at NULL; none if no suspect may run
-- Locks   the claimed row only; passes over locked ones
-- Needs   job_suspect_idx. A crash of busy processes leaves thousands of suspects and each claim looks for one,
--         so they are read one by one, and names that were found paused or full are skipped. A row is read
--         again after it is locked: not every PostgreSQL from 15 to 18 does that by itself for a row found by
--         its ctid. Spec: R3.
CREATE FUNCTION job_claim_suspect(
    claimer uuid, lease_seed bigint, queues text[], kinds text[], providers text[])
RETURNS SETOF job LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE suspect record; held text[] := '{}'; name text;
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
        CONTINUE WHEN name = ANY(held);
        -- the last only if there may be room: it keeps the cap's row to the end, for an exact count (R17)
        IF paused_until(suspect.queue, suspect.kind, suspect.provider, suspect.tenant_id, suspect.group_key) IS NOT NULL
            OR is_capped(suspect.kind, suspect.tenant_id, suspect.group_key)
                AND (is_full(suspect.tenant_id, suspect.group_key) OR (lane_places(
                    ARRAY[suspect.tenant_id], ARRAY[suspect.group_key], ARRAY[1]))[1] <= 0)
        THEN
            IF cardinality(held) < 100 THEN  -- beyond that, asking is as cheap as looking it up
                held := held || name;
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
