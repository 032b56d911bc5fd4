-- rotation_release: give up a rotation whose send changed nothing: never left, or answered "not processed".
-- Takes   connection_ids, rotation_ids (arrays of one length)
-- Gives   the rotation_ids that were ours
-- Locks   the rotation rows
-- Needs   a replay that changed nothing leaves the first send's outcome unknown, so its row stays
WITH wanted AS (
    SELECT * FROM unnest(:connection_ids::uuid[], :rotation_ids::uuid[]) AS w (connection_id, rotation_id)
),
gone AS (
    DELETE FROM rotation USING wanted
    WHERE rotation.connection_id = wanted.connection_id AND rotation.rotation_id = wanted.rotation_id
        AND (rotation.sent_at IS NULL OR (rotation.phase = 'sent' AND rotation.replays = 0))
    RETURNING rotation.rotation_id
),
kept AS (
    UPDATE rotation SET
        phase = 'unknown', replays = rotation.replays - (rotation.phase = 'sent')::integer
    FROM wanted
    WHERE rotation.connection_id = wanted.connection_id AND rotation.rotation_id = wanted.rotation_id
        AND rotation.phase <> 'unknown'
        AND rotation.sent_at IS NOT NULL AND NOT (rotation.phase = 'sent' AND rotation.replays = 0)
    RETURNING rotation.rotation_id
)
SELECT rotation_id FROM gone UNION ALL SELECT rotation_id FROM kept;
