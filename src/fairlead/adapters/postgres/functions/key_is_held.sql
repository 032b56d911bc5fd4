-- key_is_held: whether the holder of a unique key answers for a new job: until unique_until, or while it waits
-- and will still run. A job that has begun does not: its handler may have read before the caller's change. The
-- keys of fairlead's own kinds name the state that the job is about, so there a running job answers as well.
CREATE FUNCTION key_is_held(
    kind text, state text, expires_at timestamptz, unique_until timestamptz, moment timestamptz
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(unique_until > moment, false)
    OR state = 'available' AND coalesce(expires_at > moment, true)
    OR state = 'running' AND is_internal_kind(kind);
