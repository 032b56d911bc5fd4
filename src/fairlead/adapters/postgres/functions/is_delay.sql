-- is_delay: whether this is a valid delay, from 0 to 366 days. policy/jobs/job.py checks the same.
CREATE FUNCTION is_delay(delay_s double precision) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT delay_s BETWEEN 0 AND 31622400;
END;
