-- 0006_schedules: a schedule spreads its jobs after their ticks, and a person may pause it.
-- Phase   pre (the version before it leaves the new columns at their defaults, and heeds no person's pause)
-- Needs   0001_ground_floor

ALTER TABLE schedule
    -- a job runs up to so much later than its tick
    ADD COLUMN jitter interval NOT NULL DEFAULT '0' CHECK (jitter >= '0'),
    -- a person's pause: `paused` is what the program declares, and each start writes it again
    ADD COLUMN pause_at timestamptz,
    ADD COLUMN pause_by text,
    ADD COLUMN pause_why text,
    ADD CHECK (num_nulls(pause_at, pause_by, pause_why) IN (0, 3));
