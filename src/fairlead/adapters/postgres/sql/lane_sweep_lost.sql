-- lane_sweep_lost: make ready, or park with a wake time, what nobody would have looked at again.
-- Takes   nothing
-- Returns one row: opened
-- Locks   what it mends; never waits
-- Needs   the function lane_sweep_lost: the repair of missed wake-ups. A lane that waits for a cap is
--         looked at each second; one that is to be woken much later was parked before the clock was set back
WITH ahead AS (
    UPDATE lane SET wake_at = clock_timestamp() WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM lane WHERE park_reason = 'cap' AND wake_at > now() + interval '1 minute' FOR UPDATE SKIP LOCKED))
    RETURNING lane_id
)
SELECT lane_sweep_lost() + (SELECT count(*) FROM ahead)::integer AS opened
