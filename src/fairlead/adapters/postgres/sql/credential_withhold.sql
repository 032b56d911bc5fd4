-- credential_withhold: keep an answer that cannot be published, sealed (R12). Nothing paid for is thrown away.
-- Takes   withheld_id, connection_id, tenant_id, generation, epoch, reason, sealed, key_id
-- Gives   nothing
-- Locks   the new row
-- Needs   the unique index (connection_id, from_generation, epoch): a repeated try changes nothing
INSERT INTO withheld_answer (withheld_id, connection_id, tenant_id, from_generation, epoch, reason, sealed, key_id)
VALUES (:withheld_id, :connection_id, :tenant_id, :generation, :epoch, :reason, :sealed, :key_id)
ON CONFLICT (connection_id, from_generation, epoch) DO NOTHING;
