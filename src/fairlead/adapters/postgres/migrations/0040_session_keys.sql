-- 0040_session_keys: each process says which master keys it holds, so that none seals what another cannot open.
-- Phase   pre (the version before leaves both columns empty)
-- Needs   0001_ground_floor

-- master_keys: ids, the one it prefers first; NULL: an older version, which does not say.
-- data_keys_renewed_at: when a rotation has asked this process to look up the current data keys again.
ALTER TABLE worker_session ADD COLUMN master_keys text[], ADD COLUMN data_keys_renewed_at timestamptz;
