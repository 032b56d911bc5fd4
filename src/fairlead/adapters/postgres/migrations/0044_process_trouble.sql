-- 0044_process_trouble: a process says what keeps it from claiming jobs, beside its heartbeat.
-- Phase   pre (the version before it writes none)
-- Needs   0001_ground_floor

ALTER TABLE worker_session ADD COLUMN trouble text;  -- NULL: nothing does
