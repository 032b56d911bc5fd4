-- key_holder_merge: the values of a waiting holder of a unique key once it covers another job, too: at least as
-- urgent, valid for at least as long and, unless it has begun before or follows a run, due at least as early.
CREATE FUNCTION key_holder_merge(holder job, priority smallint, run_at timestamptz, expires_at timestamptz)
RETURNS TABLE (priority smallint, run_at timestamptz, expires_at timestamptz)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT least(holder.priority, $2),
        CASE WHEN holder.attempt > 0 OR holder.settled_lease_id IS NOT NULL OR holder.follow_at IS NOT NULL
             THEN holder.run_at ELSE least(holder.run_at, $3) END,
        CASE WHEN holder.state <> 'available' THEN holder.expires_at
             ELSE nullif(greatest(coalesce(holder.expires_at, 'infinity'), coalesce($4, 'infinity')), 'infinity') END;
END;
