-- endpoint_penalise: the endpoint said "too many": its bucket is empty until the time that it named has passed.
-- Takes   provider, client_id, per_s (NULL: no rate, so nothing to empty), hint_s
-- Gives   the permits left, below zero while the hint runs
-- Locks   the endpoint's row
-- Needs   the primary key; a longer hint that runs already stays
UPDATE endpoint_gate SET
    permits = least(
        permits + greatest(0, extract(epoch FROM now() - refilled_at)::float8) * :per_s::float8,
        -(:hint_s::float8 * :per_s::float8)),
    refilled_at = greatest(refilled_at, now())
WHERE provider = :provider AND client_id = :client_id AND :per_s::float8 IS NOT NULL
RETURNING permits;
