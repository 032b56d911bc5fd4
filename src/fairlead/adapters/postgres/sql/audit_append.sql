-- audit_append: add records to the audit trail (T13).
-- Takes   arrays of one length: audit_ids, acts, actors, tenant_ids, providers, connection_ids, details
-- Returns nothing
-- Locks   the new rows
-- Needs   the primary key. A record that exists is left as it is, so that a repeat does no harm
INSERT INTO audit (audit_id, act, actor, tenant_id, provider, connection_id, details)
SELECT * FROM unnest(
    :audit_ids::uuid[], :acts::text[], :actors::text[], :tenant_ids::text[], :providers::text[],
    :connection_ids::uuid[], :details::jsonb[])
ON CONFLICT (audit_id) DO NOTHING
