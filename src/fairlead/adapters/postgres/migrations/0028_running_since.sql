-- 0028_running_since: what runs is found by when it began, not among all that ever ran (Q7, Q12).
-- Phase   pre (the version before it finds what runs by this index, too)
-- Needs   0001_ground_floor. It waits for transactions that are older than itself
-- transaction: none
CREATE INDEX CONCURRENTLY job_running_since_idx ON job (tenant_id, coalesce(started_at, 'infinity'), session_id)
    WHERE state = 'running';
