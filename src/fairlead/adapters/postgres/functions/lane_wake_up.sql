-- lane_wake_up: recheck lanes that have become due, and those that lane_wake names.
-- Takes   most: at most so many of each
-- Returns the number of lanes that became ready
-- Locks   these lanes; passes over locked ones
-- Needs   lane_wake_idx. Claims call it some twenty times a second, mostly for nothing, so it looks first
--         whether there is anything
CREATE FUNCTION lane_wake_up(most integer) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE seen_to record; woken integer := 0; named uuid[]; due_ats timestamptz[];
BEGIN
    SELECT f.wake_at, f.written_by INTO seen_to FROM lane_wake_floor f;
    IF lane_wake_unseen() THEN
        BEGIN
            WITH taken AS (
                DELETE FROM lane_wake WHERE ctid = ANY(ARRAY(SELECT lane_wake_rows(most)))
                RETURNING lane_id, due_at
            )
            SELECT array_agg(lane_id), array_agg(due_at) INTO named, due_ats FROM taken;
            IF named IS NOT NULL THEN
                PERFORM lane_touch(named, due_ats);
            END IF;
        EXCEPTION WHEN lock_not_available THEN  -- a pause blocks the creation of lanes (lane_barrier): what was
            NULL;                               -- taken is left to the next look, and the claim goes on
        END;
    END IF;
    IF NOT EXISTS (SELECT FROM lane l WHERE l.state = 'parked' AND l.wake_at BETWEEN seen_to.wake_at AND now()) THEN
        RETURN woken;
    END IF;
    PERFORM pg_current_xact_id();  -- before the snapshot by which lanes join: floors wait for it
    WITH due AS MATERIALIZED (
        SELECT l.*, l.ctid AS tid FROM lane l
        WHERE l.state = 'parked' AND l.wake_at BETWEEN seen_to.wake_at AND now()
        ORDER BY l.wake_at LIMIT most FOR UPDATE SKIP LOCKED
    ),
    seen AS MATERIALIZED (
        SELECT due.*, next.run_at, next.job_id,
            -- a lane that was promoted while it waited for a cap stays there; all others return to their priority
            CASE due.park_reason WHEN 'cap' THEN least(due.level, due.priority) ELSE due.priority END AS joins,
            held_until(due.queue, due.kind, due.provider, due.tenant_id, due.group_key) AS paused
        FROM due LEFT JOIN LATERAL (
            SELECT job.run_at, job.job_id FROM job
            WHERE job.lane_id = due.lane_id AND job.state = 'available' AND job.crash_count = 0
                AND (job.run_at, job.job_id) >= (due.mark_at, due.mark_id)
                AND (job.expires_at IS NULL OR job.expires_at > now())
            ORDER BY job.run_at, job.job_id LIMIT 1
        ) AS next ON true
    ),
    class AS MATERIALIZED (
        SELECT queue, joins, kind, lane_start(queue, joins, kind) AS start FROM seen GROUP BY queue, joins, kind
    ),
    moved AS (
        UPDATE lane SET
            state = now.state,
            park_reason = CASE WHEN now.state = 'parked' THEN
                CASE WHEN now.paused IS NOT NULL THEN 'pause' WHEN now.run_at IS NULL THEN 'empty' ELSE 'due' END END,
            wake_at = CASE WHEN now.state = 'parked' THEN coalesce(
                now.paused, now.run_at, now() + interval '1 second') END,
            level = now.joins,
            vtime = CASE WHEN now.state = 'ready' THEN now.place ELSE lane.vtime END,
            -- as in job_claim: a transaction that commits within a second may come before what is visible now
            mark_at = CASE WHEN now.run_at IS NULL THEN lane.mark_at
                           ELSE least(now.run_at, now() - interval '1 second') END,
            mark_id = CASE WHEN now.run_at IS NULL THEN lane.mark_id
                           WHEN now.run_at < now() - interval '1 second' THEN now.job_id
                           ELSE '00000000-0000-0000-0000-000000000000' END,
            -- a lane that returns from a full cap has waited for its turn all that time
            served_at = CASE WHEN now.state = 'ready' AND lane.park_reason <> 'cap' THEN now() ELSE lane.served_at END
        FROM (
            SELECT seen.*, greatest(class.start, coalesce(
                    lane_last(seen.queue, seen.joins, seen.tenant_id) + seen.stride, seen.own_vtime))
                + seen.stride::bigint * (row_number() OVER (
                    PARTITION BY seen.queue, seen.joins, seen.tenant_id, seen.state
                    ORDER BY seen.served_at) - 1) AS place
            FROM (
                SELECT s.tid, s.queue, s.joins, s.served_at, s.kind, s.tenant_id, s.stride, s.vtime, s.run_at, s.job_id,
                    s.paused,
                    CASE WHEN s.level = s.joins THEN s.vtime END AS own_vtime,  -- other classes have times of their own
                    CASE WHEN s.paused IS NOT NULL THEN 'parked'
                         WHEN s.run_at <= now() THEN 'ready'
                         WHEN s.run_at IS NULL AND s.park_reason = 'empty' THEN 'idle'  -- it was empty twice
                         ELSE 'parked' END AS state
                FROM seen s
            ) AS seen JOIN class USING (queue, joins, kind)
        ) AS now
        WHERE lane.ctid = now.tid
        RETURNING lane.state
    )
    SELECT count(*) FILTER (WHERE state = 'ready') INTO woken FROM moved;
    RETURN woken;
END $$;
