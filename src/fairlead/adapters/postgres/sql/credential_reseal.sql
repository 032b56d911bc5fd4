-- credential_reseal: the same secrets under another data key, by compare-and-set on the old record.
-- Takes   connection_id, old_sealed, sealed, key_id
-- Gives   connection_id; no row if the record has moved on, which is as good
-- Locks   the credential's row
-- Needs   the primary key
UPDATE credential SET sealed = :sealed, key_id = :key_id
WHERE connection_id = :connection_id AND sealed = :old_sealed
RETURNING connection_id;
