-- 0029_running_group_since: the same for groups (Q7, Q12).
-- Phase   pre (the version before it finds what runs by this index, too)
-- Needs   0002_lanes. It waits for transactions that are older than itself
-- transaction: none
CREATE INDEX CONCURRENTLY job_running_group_since_idx ON job (group_key, coalesce(started_at, 'infinity'))
    WHERE state = 'running' AND group_key <> '';
