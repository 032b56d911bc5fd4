-- credential_read_id: connections by id, each with its credential and the refresh in flight.
-- Takes   connection_ids
-- Returns a row per connection that exists: its position in the array (ord) and credential_detail
-- Locks   nothing
-- Needs   the primary keys of connection, credential and refresh_attempt
SELECT wanted.ord, d.*
FROM unnest(:connection_ids::uuid[]) WITH ORDINALITY AS wanted (connection_id, ord)
JOIN credential_detail d USING (connection_id);
