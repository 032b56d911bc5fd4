-- lane_sweep_lost: repair lanes with work that no claim would check again; make them ready, or park them with a
-- wake time.
-- Takes   nothing
-- Returns one row: opened
-- Locks   the lanes that it repairs; never waits
-- Needs   the function lane_sweep_lost, the repair of missed wake-ups. A lane under a full cap is checked each
--         second; one that is to wake much later was parked before the clock was set back
WITH late_lane AS (
    UPDATE lane SET wake_at = clock_timestamp() WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM lane WHERE park_reason = 'cap' AND wake_at > now() + interval '1 minute' FOR UPDATE SKIP LOCKED))
    RETURNING lane_id
)
SELECT lane_sweep_lost() + (SELECT count(*) FROM late_lane)::integer AS opened
