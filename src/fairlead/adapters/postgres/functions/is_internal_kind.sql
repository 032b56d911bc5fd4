-- is_internal_kind: whether a kind is fairlead's own work: refreshes, notices, dead letters and the clean-up.
-- Only a pause of the kind itself parks such work, and no cap counts it.
CREATE FUNCTION is_internal_kind(of_kind text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT split_part(of_kind, '.', 1) IN ('token', 'event', 'dead_letter') AND of_kind LIKE '%.%'
        OR of_kind = 'clean_up';
END;
