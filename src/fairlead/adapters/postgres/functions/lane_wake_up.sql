-- lane_wake_up: check lanes that have become due, and those that lane_wake names; make them ready if they have
-- work.
-- Takes   most: the limit of each of the two
-- Returns the number of due lanes that became ready; those of lane_wake do not count
-- Locks   these lanes; passes over locked ones
-- Needs   lane_wake_idx. Claims call it some twenty times a second, mostly without need, so it first reads
--         whether there is anything to do
CREATE FUNCTION lane_wake_up(most integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE wake_floor record; ready_lanes integer := 0; lane_ids uuid[]; due_ats timestamptz[];
BEGIN
    SELECT f.wake_at, f.written_by INTO wake_floor FROM lane_wake_floor f;
    IF lane_wake_has_new() THEN
        BEGIN
            WITH wake_row AS (
                DELETE FROM lane_wake WHERE ctid = ANY(ARRAY(SELECT lane_wake_rows(most)))
                RETURNING lane_id, due_at
            )
            SELECT array_agg(lane_id), array_agg(due_at) INTO lane_ids, due_ats FROM wake_row;
            IF lane_ids IS NOT NULL THEN
                PERFORM lane_touch(lane_ids, due_ats);
            END IF;
        EXCEPTION WHEN lock_not_available THEN  -- a pause blocks the creation of lanes (lane_barrier). The
            NULL;                               -- rows stay for the next call, and the claim goes on
        END;
    END IF;
    IF NOT EXISTS (SELECT FROM lane l WHERE l.state = 'parked' AND l.wake_at BETWEEN wake_floor.wake_at AND now()) THEN
        RETURN ready_lanes;
    END IF;
    PERFORM pg_current_xact_id();  -- an id from before the snapshot, so that floors wait for this transaction
    WITH due_lane AS MATERIALIZED (
        SELECT l.*, l.ctid AS tid FROM lane l
        WHERE l.state = 'parked' AND l.wake_at BETWEEN wake_floor.wake_at AND now()
        ORDER BY l.wake_at LIMIT most FOR UPDATE SKIP LOCKED
    ),
    checked_lane AS MATERIALIZED (
        SELECT due_lane.*, first_job.run_at, first_job.job_id,
            -- a lane that was promoted while it waited for a cap stays there; all others return to their priority
            CASE due_lane.park_reason WHEN 'cap' THEN least(due_lane.level, due_lane.priority)
                ELSE due_lane.priority END AS new_level,
            paused_until_locked(due_lane.queue, due_lane.kind, due_lane.provider, due_lane.tenant_id,
                due_lane.group_key) AS paused
        FROM due_lane LEFT JOIN LATERAL (
            SELECT job.run_at, job.job_id FROM job
            WHERE job.lane_id = due_lane.lane_id AND job.state = 'available' AND job.crash_count = 0
                AND (job.run_at, job.job_id) >= (due_lane.mark_at, due_lane.mark_id)
                AND (job.expires_at IS NULL OR job.expires_at > now())
            ORDER BY job.run_at, job.job_id LIMIT 1
        ) AS first_job ON true
    ),
    class AS MATERIALIZED (
        SELECT queue, new_level, kind, lane_join_vtime(queue, new_level, kind) AS start
            FROM checked_lane GROUP BY queue, new_level, kind
    ),
    updated_lane AS (
        UPDATE lane SET
            state = change.state,
            park_reason = CASE WHEN change.state = 'parked' THEN
                CASE WHEN change.paused IS NOT NULL THEN 'pause' WHEN change.run_at IS NULL THEN 'empty' ELSE 'due' END END,
            wake_at = CASE WHEN change.state = 'parked' THEN coalesce(
                change.paused, change.run_at, now() + interval '1 second') END,
            level = change.new_level,
            vtime = CASE WHEN change.state = 'ready' THEN change.new_vtime ELSE lane.vtime END,
            -- as in job_claim: a transaction that commits within a second may come before what is visible now
            mark_at = CASE WHEN change.run_at IS NULL THEN lane.mark_at
                           ELSE least(change.run_at, now() - interval '1 second') END,
            mark_id = CASE WHEN change.run_at IS NULL THEN lane.mark_id
                           WHEN change.run_at < now() - interval '1 second' THEN change.job_id
                           ELSE '00000000-0000-0000-0000-000000000000' END,
            -- a lane that returns from a full cap has waited for its turn since then
            served_at = CASE WHEN change.state = 'ready' AND lane.park_reason <> 'cap' THEN now() ELSE lane.served_at END
        FROM (
            SELECT checked_lane.*, greatest(class.start, coalesce(
                    lane_last_vtime(checked_lane.queue, checked_lane.new_level,
                        checked_lane.tenant_id) + checked_lane.stride, checked_lane.own_vtime))
                + checked_lane.stride::bigint * (row_number() OVER (
                    PARTITION BY checked_lane.queue, checked_lane.new_level, checked_lane.tenant_id, checked_lane.state
                    ORDER BY checked_lane.served_at) - 1) AS new_vtime
            FROM (
                SELECT s.tid, s.queue, s.new_level, s.served_at, s.kind, s.tenant_id, s.stride, s.vtime, s.run_at, s.job_id,
                    s.paused,
                    CASE WHEN s.level = s.new_level THEN s.vtime END AS own_vtime,  -- each class has its own virtual time
                    CASE WHEN s.paused IS NOT NULL THEN 'parked'
                         WHEN s.run_at <= now() THEN 'ready'
                         WHEN s.run_at IS NULL AND s.park_reason = 'empty' THEN 'idle'  -- no work at two checks
                         ELSE 'parked' END AS state
                FROM checked_lane s
            ) AS checked_lane JOIN class USING (queue, new_level, kind)
        ) AS change
        WHERE lane.ctid = change.tid
        RETURNING lane.state
    )
    SELECT count(*) FILTER (WHERE state = 'ready') INTO ready_lanes FROM updated_lane;
    RETURN ready_lanes;
END $$;
