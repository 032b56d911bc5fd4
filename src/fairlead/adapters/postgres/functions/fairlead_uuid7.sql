-- fairlead_uuid7: return a UUID of version 7 (RFC 9562) with microseconds, so that ids that one statement
-- generates stay in order. uuidv7() needs PostgreSQL 18.
CREATE FUNCTION fairlead_uuid7() RETURNS uuid LANGUAGE sql VOLATILE
RETURN (
    SELECT encode(overlay(
        uuid_send(gen_random_uuid()) PLACING int8send(us / 1000 << 16 | 28672 | us % 1000 * 4) FROM 1 FOR 8), 'hex')::uuid
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS now
);
