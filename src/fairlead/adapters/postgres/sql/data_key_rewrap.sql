-- data_key_rewrap: the same data key under another master key, by compare-and-set on the old wrapping.
-- Takes   key_id, old_wrapped, master_id, wrapped
-- Returns key_id; no row if another process was faster
-- Locks   the row
-- Needs   the primary key
UPDATE data_key SET master_id = :master_id, wrapped = :wrapped
WHERE key_id = :key_id AND wrapped = :old_wrapped
RETURNING key_id;
