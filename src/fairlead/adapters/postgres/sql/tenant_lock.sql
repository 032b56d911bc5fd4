-- tenant_lock: block other changes of weights and caps until the end of the transaction.
-- Takes   nothing
-- Returns nothing
-- Locks   the table tenant_setting in SHARE ROW EXCLUSIVE mode: readers are not blocked. The next
--         statements compute the caps of many tenants from two tables, and must see other changes completely
-- Needs   a transaction
LOCK TABLE tenant_setting IN SHARE ROW EXCLUSIVE MODE
