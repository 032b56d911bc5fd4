-- lane_touch: jobs of these lanes have come, due now, in this transaction.
-- Takes   lane_ids
-- Gives   nothing
-- Locks   those lanes that are not ready, or that read past these jobs; never waits for a claim
-- Needs   the function lane_touch (0002_lanes). Called once more at the end of a transaction of several statements
SELECT lane_touch(:lane_ids::uuid[], array_fill(now(), ARRAY[cardinality(:lane_ids::uuid[])]))
