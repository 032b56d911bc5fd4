-- 0025_lanes_found_from_above: a lane is found by its newest row, whatever the statistics say (Q12).
-- Phase   pre (the version before it calls the same functions, and does without the new one)
-- Needs   0018_turns_under_caps

-- Where a snapshot is held, the rows that a lane was stay, each with an entry of lane_find_idx below that of the row that
-- it is. ANALYZE counts them as none: a lane is one row, so that to read all of its entries and sort them looks as good as
-- to take the first from above. After 15 minutes each batch of new jobs read 50,000 entries so.
ALTER FUNCTION lane_touch(uuid[], timestamptz[]) SET enable_seqscan = off;
ALTER FUNCTION lane_touch(uuid[], timestamptz[]) SET enable_bitmapscan = off;
ALTER FUNCTION lane_wake_up(integer) SET enable_bitmapscan = off;

-- Whether a lane needs nothing where work has come that is due at `due_at`: most are ready.
CREATE OR REPLACE FUNCTION lane_is_open(of_lane uuid, due_at timestamptz) RETURNS boolean LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN (
        SELECT l.state = 'ready' AND l.mark_at < due_at FROM lane l WHERE l.lane_id = of_lane
        ORDER BY l.vtime DESC LIMIT 1
    ) IS TRUE;
END $$;
