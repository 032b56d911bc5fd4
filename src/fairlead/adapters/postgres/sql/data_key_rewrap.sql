-- data_key_rewrap: store a data key as another master key wrapped it, by compare-and-set on the old form.
-- Takes   key_id, old_wrapped, master_id, wrapped
-- Returns key_id; no row if another process was faster
-- Locks   the row
-- Needs   the primary key
UPDATE data_key SET master_id = :master_id, wrapped = :wrapped
WHERE key_id = :key_id AND wrapped = :old_wrapped
RETURNING key_id;
