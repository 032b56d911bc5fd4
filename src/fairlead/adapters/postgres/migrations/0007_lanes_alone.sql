-- 0007_lanes_alone: the indexes of the claim that knew no lanes.
-- Phase   post (the version before lanes claims by them)
-- Needs   0002_lanes. They cost each job two entries, and statistics taken while little waits make them look cheap
DROP INDEX job_ready_idx;
DROP INDEX job_kind_idx;
