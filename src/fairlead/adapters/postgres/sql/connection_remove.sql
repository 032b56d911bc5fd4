-- connection_remove: delete a connection, its secrets and its refresh in flight.
-- Takes   connection_id, tenant_id (its owner), actor, audit_id
-- Returns connection_id; no row if there is none
-- Locks   the credential's row, as settle does first; then the connection's and the refresh attempt's, and the
--         lanes that waited for a grant
-- Needs   the credential follows by its foreign key; resume_after_grant
WITH held AS MATERIALIZED (
    SELECT FROM credential WHERE connection_id = :connection_id FOR NO KEY UPDATE
),
gone AS (
    DELETE FROM connection USING (SELECT count(*) FROM held) AS first
    WHERE connection_id = :connection_id AND tenant_id = :tenant_id
    RETURNING connection_id, tenant_id, provider, account
),
freed AS (
    DELETE FROM refresh_attempt USING gone WHERE refresh_attempt.connection_id = gone.connection_id
),
goes_on AS MATERIALIZED (SELECT resume_after_grant(tenant_id, provider, account) FROM gone)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id)
SELECT :audit_id::uuid, tenant_id, :actor::text, 'connection.removed', provider, connection_id
FROM gone, goes_on
RETURNING connection_id;
