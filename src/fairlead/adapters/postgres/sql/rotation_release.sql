-- rotation_release: give up a rotation whose send changed nothing: never left, or answered "not processed".
-- Takes   connection_ids, rotation_ids (arrays of one length)
-- Gives   the rotation_ids that were ours
-- Locks   the credentials' rows, then the rotations', each in key order, as settle does. A credential that others had
--         meanwhile declared unknown is active again
-- Needs   a replay that changed nothing leaves the first send's outcome unknown, so its row stays. It gets
--         another rotation_id: asked twice, this must not take the first send for the replay, and forget it.
--         Unknown without a replay is the first send itself, by the one who knows that nothing came of it
WITH wanted AS (
    SELECT * FROM unnest(:connection_ids::uuid[], :rotation_ids::uuid[]) AS w (connection_id, rotation_id)
),
credentials AS MATERIALIZED (
    SELECT FROM credential WHERE connection_id = ANY(:connection_ids::uuid[])
    ORDER BY connection_id FOR NO KEY UPDATE
),
held AS MATERIALIZED (
    SELECT FROM rotation
    WHERE connection_id = ANY(:connection_ids::uuid[]) AND (SELECT count(*) FROM credentials) >= 0  -- they are first
    ORDER BY connection_id FOR UPDATE
),
gone AS (
    DELETE FROM rotation USING wanted, (SELECT count(*) FROM held) AS first
    WHERE rotation.connection_id = wanted.connection_id AND rotation.rotation_id = wanted.rotation_id
        AND (rotation.sent_at IS NULL OR (rotation.phase IN ('sent', 'unknown') AND rotation.replays = 0))
    RETURNING rotation.rotation_id, rotation.connection_id, rotation.from_generation, rotation.phase
),
known AS (
    UPDATE credential SET state = 'active', state_reason = NULL, state_at = now(), due_at = now()
    FROM gone
    WHERE gone.phase = 'unknown' AND credential.connection_id = gone.connection_id
        AND credential.generation = gone.from_generation AND credential.state = 'unknown'
),
kept AS (
    UPDATE rotation SET
        phase = 'unknown', replays = rotation.replays - (rotation.phase = 'sent')::integer,
        rotation_id = gen_random_uuid()
    FROM wanted, (SELECT count(*) FROM held) AS first
    WHERE rotation.connection_id = wanted.connection_id AND rotation.rotation_id = wanted.rotation_id
        AND rotation.phase <> 'unknown'
        AND rotation.sent_at IS NOT NULL AND NOT (rotation.phase = 'sent' AND rotation.replays = 0)
    RETURNING wanted.rotation_id
)
SELECT rotation_id FROM gone UNION ALL SELECT rotation_id FROM kept;
