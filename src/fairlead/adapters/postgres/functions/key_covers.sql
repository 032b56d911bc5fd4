-- key_covers: whether the holder of a unique key covers a new job, so that none is stored: until unique_until,
-- or while it waits and has not expired. A running job does not cover one, because its handler may have read
-- before the caller's change. The keys of fairlead's own kinds name the state that the job is about, so there
-- it does.
CREATE FUNCTION key_covers(
    kind text, state text, expires_at timestamptz, unique_until timestamptz, now_at timestamptz
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(unique_until > now_at, false)
    OR state = 'available' AND coalesce(expires_at > now_at, true)
    OR state = 'running' AND is_internal_kind(kind);
