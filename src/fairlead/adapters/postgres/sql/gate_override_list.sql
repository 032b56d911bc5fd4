-- gate_override_list: what is switched by hand at the gate, the widest reach first.
-- Takes   steps (how many there are: a switch whose last one has begun does nothing any more, and is left out)
-- Returns act, tenant_id, provider, bucket, reason, actor, since, on_s (NULL: limits do not come back yet), step_s
-- Locks   nothing
-- Needs   one row per switch: few
SELECT act, tenant_id, provider, bucket, reason, actor, since,
    extract(epoch FROM now() - on_since)::float8 AS on_s, step_s
FROM gate_override
WHERE on_since IS NULL OR now() < on_since + (:steps::int - 1) * step_s * interval '1 second'
ORDER BY provider, tenant_id, bucket, act
