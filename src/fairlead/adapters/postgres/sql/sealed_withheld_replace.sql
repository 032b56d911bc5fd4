-- sealed_withheld_replace: the same answers under another data key, by compare-and-set on the old records.
-- Takes   record_ids, olds, news, key_ids (arrays of equal length)
-- Gives   record_id of each that was replaced
-- Locks   the rows it changes; nobody else changes a withheld answer
-- Needs   the primary key
UPDATE withheld_answer w SET sealed = u.new, key_id = u.key_id
FROM unnest(:record_ids::uuid[], :olds::bytea[], :news::bytea[], :key_ids::uuid[])
    AS u (record_id, old, new, key_id)
WHERE w.withheld_id = u.record_id AND w.sealed = u.old
RETURNING w.withheld_id AS record_id;
