-- connection_remove: delete a connection, its secrets and its refresh in flight.
-- Takes   connection_id, actor, audit_id
-- Gives   connection_id; no row if there is none
-- Locks   the connection's rows
-- Needs   credential and withheld_answer follow by their foreign keys
WITH gone AS (
    DELETE FROM connection WHERE connection_id = :connection_id
    RETURNING connection_id, tenant_id, provider
),
freed AS (
    DELETE FROM rotation USING gone WHERE rotation.connection_id = gone.connection_id
)
INSERT INTO audit (audit_id, tenant_id, actor, act, provider, connection_id)
SELECT :audit_id::uuid, tenant_id, :actor::text, 'connection.removed', provider, connection_id FROM gone
RETURNING connection_id;
