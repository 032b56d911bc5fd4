-- 0049_key_runs: find a run that has handed its unique key on, among the few that have (R53).
-- Phase   pre (the version before it does not look for them)
-- Needs   0035_unique_keys. It waits for transactions that are older than itself
-- transaction: none
CREATE INDEX CONCURRENTLY job_key_runs_idx ON job (kind, tenant_id, unique_key)
    WHERE state = 'running' AND NOT unique_live AND unique_key IS NOT NULL;
