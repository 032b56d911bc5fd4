-- 0043_sessions_ended: a rescue knows whether a process has ended lately, and else does not walk along what runs (Q3, Q12).
-- Phase   pre
-- Needs   0001_ground_floor

-- Updates of heartbeats do not touch it. In no order of its own: of many that have ended at once, one is enough.
CREATE INDEX worker_session_ended_idx ON worker_session (greatest(lost_at, stopped_at));
