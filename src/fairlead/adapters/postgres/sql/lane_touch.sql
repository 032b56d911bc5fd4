-- lane_touch: let claims find due jobs stored in these lanes in this transaction or within the last seconds.
-- Takes   lane_ids, since_s (0: in this transaction)
-- Returns nothing
-- Locks   those lanes that are not ready, or that read past these jobs, and floors; never waits for a claim
-- Needs   the functions lane_touch and lane_raise_floors. Called at the end of a
--         transaction of several statements, and once more after one that was slow: claims may have looked past jobs
--         that they did not see yet
SELECT lane_touch(:lane_ids::uuid[], array_fill(
    now() - :since_s::float8 * interval '1 second', ARRAY[cardinality(:lane_ids::uuid[])])),
    -- floors wait 15 s for a writer: a lane that was committed later may lie below its floor, which no claim reads
    CASE WHEN :since_s::float8 > 15 THEN lane_raise_floors(true) END
