-- sealed_credential_replace: store the same secrets under another data key, by compare-and-set on the old
-- records.
-- Takes   record_ids, olds, news, key_ids (arrays of one length)
-- Returns record_id of each that it replaced; the others have changed, or another transaction has locked them
-- Locks   the rows that it changes; never waits, so that it cannot be part of a deadlock
-- Needs   the primary key
WITH change AS MATERIALIZED (
    SELECT * FROM unnest(:record_ids::uuid[], :olds::bytea[], :news::bytea[], :key_ids::uuid[])
        AS u (record_id, old, new, key_id)
),
locked_credential AS MATERIALIZED (
    SELECT cr.connection_id FROM credential cr JOIN change ON cr.connection_id = change.record_id
    WHERE cr.sealed = change.old
    FOR UPDATE OF cr SKIP LOCKED
)
UPDATE credential cr SET sealed = change.new, key_id = change.key_id
FROM change JOIN locked_credential ON locked_credential.connection_id = change.record_id
WHERE cr.connection_id = change.record_id AND cr.sealed = change.old
RETURNING cr.connection_id AS record_id;
