-- gate_override_expire: let the limits of what is disabled come back step by step; one that does so already goes on.
-- Takes   tenant_id, provider, bucket, step_s
-- Returns one row: act; no row where nothing is disabled, or where its limits come back already
-- Locks   its row
-- Needs   the primary key
UPDATE gate_override SET on_since = now(), step_s = :step_s
WHERE act = 'disabled' AND tenant_id = :tenant_id AND provider = :provider AND bucket = :bucket AND on_since IS NULL
RETURNING act
