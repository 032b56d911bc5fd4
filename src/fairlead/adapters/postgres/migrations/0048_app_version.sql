-- 0048_app_version: each process states the version of its application, so that operators see a deploy that is half done.
-- Phase   pre (the version before leaves the column empty)
-- Needs   0001_ground_floor

ALTER TABLE worker_session ADD COLUMN app_version text;  -- NULL: not stated
