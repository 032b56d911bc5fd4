-- credential_read_id: read connections by id, each with its credential and its refresh in flight.
-- Takes   connection_ids
-- Returns a row for each connection that exists: its position in the array (ord), and credential_detail
-- Locks   nothing
-- Needs   the primary keys of connection, credential and refresh_attempt
SELECT input.ord, d.*
FROM unnest(:connection_ids::uuid[]) WITH ORDINALITY AS input (connection_id, ord)
JOIN credential_detail d USING (connection_id);
