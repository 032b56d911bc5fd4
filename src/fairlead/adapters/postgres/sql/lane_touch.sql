-- lane_touch: let claims find the due jobs that were stored in these lanes in this transaction or in the last
-- seconds.
-- Takes   lane_ids, since_s (0: in this transaction)
-- Returns nothing
-- Locks   those lanes that are not ready, or have a mark past these jobs, and floors; never waits for a claim
-- Needs   the functions lane_touch and lane_raise_floors. It is called at the end of a transaction of several
--         statements, and once more after a slow one, because claims may have moved marks past jobs that they
--         did not see yet
SELECT lane_touch(:lane_ids::uuid[], array_fill(
    now() - :since_s::float8 * interval '1 second', ARRAY[cardinality(:lane_ids::uuid[])])),
    -- floors wait 15 s for a writer: a lane that was committed later may lie below its floor, where no claim reads
    CASE WHEN :since_s::float8 > 15 THEN lane_raise_floors(true) END
