-- tenant_lock: be the only one who changes weights and caps, until the end of the transaction.
-- Takes   nothing
-- Gives   nothing
-- Locks   the table tenant_share in SHARE ROW EXCLUSIVE mode: who reads it goes on. What follows computes the caps
--         of many tenants from two tables, and must see the other changes whole
-- Needs   a transaction
LOCK TABLE tenant_share IN SHARE ROW EXCLUSIVE MODE
