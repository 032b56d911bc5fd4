-- tenant_lock: be the only one who changes weights and caps, until the end of the transaction.
-- Takes   nothing
-- Returns nothing
-- Locks   the table tenant_setting in SHARE ROW EXCLUSIVE mode: who reads it goes on. What follows computes the caps
--         of many tenants from two tables, and must see the other changes whole
-- Needs   a transaction
LOCK TABLE tenant_setting IN SHARE ROW EXCLUSIVE MODE
