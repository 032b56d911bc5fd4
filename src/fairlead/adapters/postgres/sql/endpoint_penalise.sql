-- endpoint_penalise: record a 429 for one connection; 429s for two connections empty the bucket for a while
-- (R50).
-- Takes   provider, bucket (the rate's row), connection_id, per_s (NULL: no rate, so there is nothing to
--         empty), burst, hint_s
-- Returns nothing
-- Locks   the rate's row (endpoint_gate_lock)
-- Needs   the primary key. A token in between resets the count. A longer hint that is running stays. The debt
--         is at most one bucket (R52)
UPDATE endpoint_gate g SET
    limited = CASE WHEN :connection_id::uuid = ANY (g.limited) OR cardinality(g.limited) > 1
        THEN g.limited ELSE array_append(g.limited, :connection_id::uuid) END,
    permits = CASE WHEN cardinality(array_remove(g.limited, :connection_id::uuid)) = 0 THEN g.permits ELSE least(
        g.permits + greatest(0, extract(epoch FROM now() - g.refilled_at)::float8) * :per_s::float8,
        -least(:burst::float8, :hint_s::float8 * :per_s::float8)) END,
    refilled_at = CASE WHEN cardinality(array_remove(g.limited, :connection_id::uuid)) = 0
        THEN g.refilled_at ELSE greatest(g.refilled_at, now()) END
FROM endpoint_gate_lock(:provider, ARRAY[:bucket]) AS locked_gate
WHERE g.provider = :provider AND g.client_id = locked_gate.client_id AND :per_s::float8 IS NOT NULL;
